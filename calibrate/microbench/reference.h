// Attention in double, the obvious way: what the kernels are checked against, on
// the GPU by `gpu_microbench --check` and emulated by the tests.
#pragma once

#include <functional>
#include <vector>

namespace kneepoint::microbench {

/// A key or value of a KV head: number `d` of the row of token `token`.
using RowReader = std::function<double(int token, int d)>;

/// sum over tokens of softmax(scale q k) v, for one query over the first `tokens` tokens.
[[nodiscard]] std::vector<double> reference_attention(const std::vector<double>& query, int tokens,
                                                      double scale, const RowReader& key,
                                                      const RowReader& value);

/// sum over k of x[i] w[i].
[[nodiscard]] double reference_dot(const std::vector<double>& x, const std::vector<double>& w);

/// How far `got` is from `expected`, over the largest size of an expected number.
[[nodiscard]] double relative_error(const std::vector<double>& got, const std::vector<double>& expected);

}  // namespace kneepoint::microbench
