#include "sim/matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <utility>

#include "sim/client.h"
#include "sim/defaults_parts.h"
#include "sim/on_cores.h"
#include "sim/options.h"
#include "sim/usage_error.h"
#include "traces/lengths.h"

namespace kneepoint::sim {
namespace {

constexpr std::int64_t kMostRequests = 1'000'000;
constexpr traces::ContentId kPrefix = 1;
constexpr double kAlmostOne = 1 - 0x1p-53;  // The largest uniform number.

// The requests of one cell, all there from the start.
class BenchWorkload final : public Workload {
 public:
  BenchWorkload(const MatrixOptions& options, std::int64_t context, std::uint64_t seed)
      : num_requests_(options.num_requests),
        prefix_tokens_(options.prefix_tokens),
        next_content_(kPrefix),
        lengths_(traces::model_pairs(
            traces::uniform_lengths(context - options.output_tokens - options.prefix_tokens,
                                    options.random_range_ratio),
            traces::uniform_lengths(options.output_tokens, options.random_range_ratio), 0.0, seed)) {}

  [[nodiscard]] bool next(Send& send) override {
    if (given_ == num_requests_) {
      return false;
    }
    send.index = static_cast<std::uint64_t>(given_++);
    send.arrival = SimTime{};
    const traces::LengthPairs::Pair lengths = lengths_->next();
    send.record = traces::TraceRecord{};
    send.record.prompt_tokens = prefix_tokens_ + lengths.prompt;
    send.record.output_tokens = lengths.output;
    if (prefix_tokens_ > 0) {
      send.record.prompt = {{kPrefix, 0, prefix_tokens_}, {++next_content_, 0, lengths.prompt}};
    }
    return true;
  }

 private:
  std::int64_t num_requests_;
  std::int64_t prefix_tokens_;
  traces::ContentId next_content_;
  std::unique_ptr<traces::LengthPairs> lengths_;
  std::int64_t given_ = 0;
};

void check(const MatrixOptions& options) {
  const auto all_positive = [](const std::vector<std::int64_t>& values) {
    return !values.empty() && std::ranges::all_of(values, [](std::int64_t v) { return v > 0; });
  };
  if (!all_positive(options.contexts) || !all_positive(options.concurrencies)) {
    throw UsageError("matrix: --contexts and --concurrencies take whole numbers above 0");
  }
  const auto duplicate = [](std::vector<std::int64_t> values) {
    std::ranges::sort(values);
    return std::ranges::adjacent_find(values) != values.end();
  };
  if (duplicate(options.contexts) || duplicate(options.concurrencies)) {
    throw UsageError("matrix: --contexts or --concurrencies names a value twice");
  }
  if (options.num_requests < 1 || options.num_requests > kMostRequests) {
    throw UsageError(
        fmt::format("matrix: --num-prompts is {}; give 1 to {}", options.num_requests, kMostRequests));
  }
  if (!(options.random_range_ratio >= 0 && options.random_range_ratio < 1)) {
    throw UsageError(
        fmt::format("matrix: --random-range-ratio is {}; give 0 to below 1", options.random_range_ratio));
  }
  if (options.output_tokens < 1 || options.prefix_tokens < 0) {
    throw UsageError("matrix: --output-len takes 1 or more, --prefix-len 0 or more");
  }
  for (const std::int64_t context : options.contexts) {
    if (context <= options.output_tokens + options.prefix_tokens) {
      throw UsageError(
          fmt::format("matrix: a context of {} leaves no prompt beside --output-len {} and --prefix-len {}",
                      context, options.output_tokens, options.prefix_tokens));
    }
  }
}

// The longest request that the client may draw.
std::int64_t longest_request(const MatrixOptions& options, std::int64_t context) {
  const std::int64_t prompt = context - options.output_tokens - options.prefix_tokens;
  const auto longest = [&](std::int64_t mean) {
    return traces::uniform_lengths(mean, options.random_range_ratio)->quantile(kAlmostOne);
  };
  return options.prefix_tokens + longest(prompt) + longest(options.output_tokens);
}

// The server of one context. Throws CannotRun if it would not start.
RunConfig server_for(pb::RunConfig asked, const hw::ModelArch& model, const MatrixOptions& options,
                     std::int64_t context) {
  if (!asked.has_max_model_len()) {
    asked.set_max_model_len(std::min(longest_request(options, context), hw::planner_context(model)));
  }
  RunConfig server = resolve(asked);
  server.resolved_text = as_text(as_proto(server, asked));
  return server;
}

void run_cell(const Matrix& matrix, MatrixCell& cell) {
  RunConfig config = matrix.servers[cell.server];
  config.client.max_concurrency = cell.concurrency;
  SemaphoreClient client(std::make_unique<OpenLoopClient>(
                             std::make_unique<BenchWorkload>(matrix.options, cell.context, config.seed)),
                         cell.concurrency);
  cell.run = measure(config, client);
}

// One context's row of cells, and its server if any of them fits.
void add_context(const pb::RunConfig& asked, const hw::Deployment& deployment, std::int64_t context,
                 Matrix& matrix) {
  std::string refused;
  bool tried = false;
  for (const std::int64_t concurrency : matrix.options.concurrencies) {
    MatrixCell cell;
    cell.context = context;
    cell.concurrency = concurrency;
    cell.fit = hw::planner_fit(deployment, context, concurrency);
    if (cell.fit == hw::Fit::kFits && !std::exchange(tried, true)) {
      try {
        matrix.servers.push_back(server_for(asked, deployment.model, matrix.options, context));
      } catch (const CannotRun& error) {
        refused = error.what();
      }
    }
    if (cell.fit == hw::Fit::kFits) {
      cell.refused = refused;
      cell.server = refused.empty() ? matrix.servers.size() - 1 : 0;
    }
    matrix.cells.push_back(std::move(cell));
  }
}

}  // namespace

Matrix run_matrix(const pb::RunConfig& asked, const MatrixOptions& options,
                  const std::function<void()>& cell_over) {
  check(options);
  RunConfig planned;  // Model, GPU and types, whatever the context.
  resolve_deployment(asked, planned);
  const hw::Deployment& deployment = planned.deployment;
  Matrix matrix;
  matrix.options = options;
  matrix.kv_budget_bytes =
      hw::planner_kv_budget_bytes(deployment.model, deployment.gpu, deployment.weights,
                                  deployment.tensor_parallel_size * deployment.pipeline_parallel_size);
  for (const std::int64_t context : options.contexts) {
    add_context(asked, deployment, context, matrix);
  }
  std::mutex one_at_a_time;
  for_each_on_cores(static_cast<std::int64_t>(matrix.cells.size()), options.threads, [&](std::int64_t i) {
    MatrixCell& cell = matrix.cells[static_cast<std::size_t>(i)];
    if (cell.fit == hw::Fit::kFits && cell.refused.empty()) {
      run_cell(matrix, cell);
    }
    if (cell_over) {
      const std::lock_guard<std::mutex> lock(one_at_a_time);
      cell_over();
    }
  });
  return matrix;
}

}  // namespace kneepoint::sim
