// What clients saw, by `vllm bench serve`'s definitions.
//
//     arrival      sent                              first chunk        last chunk
//        |--client--|---------------- TTFT ---------------|-- ITL -- ITL --|
//        |  queue   |-------------------------- E2EL ----------------------|
//                   | front end | queue | prefill         |
//
//     TPOT = (E2EL - TTFT) / (output tokens - 1), requests with more than one token
//     ITL  = gaps between chunks, of all requests pooled (with drafts a chunk
//            can hold several tokens)
//     throughput = counts over the duration, which runs from the start of the
//            trace until the last request is over
//
// Only completed requests count, in every figure but `failed` and the reasons:
// a request that times out after its hundredth token has given no output. So the
// tokens of a request that fails are taken out again: where each is told by itself
// (--plain-steps, --save-detailed), a request's gaps are kept until it is over, 8
// bytes a token; else the loop knows when they came (on_tokens_withdrawn()).
//
// TTFT counts from the send, which in an open loop is the arrival. With
// --max-concurrency a request first waits for a slot of the client; that time is
// in none of the four, it is the client queue time.
//
// Queue is the time between a request's coming to the scheduler and its first
// step; prefill from there to the first token at the client, preemptions in
// between included.
//
// Source  vllm/benchmarks/serve.py of vLLM 0.32.0 as its results show it;
//         tests/sim/metrics_recorded_test.cc holds recorded results against this.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/flat_map.h"
#include "sim/metrics_gaps.h"
#include "sim/observer.h"
#include "sim/percentiles.h"
#include "sim/request_record.h"
#include "sim/run_config.h"
#include "sim/run_summary.h"

namespace kneepoint::sim {

/// One request with the gaps between its chunks, for --save-detailed.
struct DetailedRequest {
  RequestRecord record;
  std::vector<std::int64_t> gaps_ns;
};

struct MetricsReport {
  std::array<std::int64_t, kNumRequestEnds> ended{};  ///< By RequestEnd.
  std::int64_t completed = 0;
  std::int64_t failed = 0;
  SimDuration duration{0};
  std::int64_t total_input_tokens = 0;  ///< Of completed requests, as the next.
  std::int64_t total_output_tokens = 0;
  std::optional<double> request_throughput;  ///< Per second. Nothing if the duration is 0; so all four.
  std::optional<double> request_goodput;     ///< Nothing without limits, too.
  std::optional<double> output_throughput;
  std::optional<double> total_token_throughput;
  std::int64_t max_chunks_per_s = 0;         ///< Fullest second counted from the first send.
  std::int64_t max_concurrent_requests = 0;  ///< Most completed requests that touch one such second.
  std::int64_t peak_in_flight = 0;           ///< Most sent and not over at one instant, failed ones included.

  LatencyStats ttft;
  LatencyStats tpot;
  LatencyStats itl;
  LatencyStats e2el;
  LatencyStats client_queue;  ///< Only with --max-concurrency; so the next.
  LatencyStats e2el_with_client_queue;
  LatencyStats queue;
  LatencyStats prefill;
  bool itl_exact = true;  ///< Else percentiles and max of ITL are within 0.1 %; mean and std are exact.

  std::vector<double> ttft_quantiles_ms;  ///< Quantiles 0, 0.001, ..., 1; only if files are written.
  std::vector<DetailedRequest> detailed;  ///< In the order of the workload; only if asked for.

  [[nodiscard]] std::int64_t requests() const { return completed + failed; }
  [[nodiscard]] std::optional<double> error_rate() const;
};

class Metrics final : public RunObserver {
 public:
  explicit Metrics(const RunConfig& config);

  void on_send(const RequestRecord& request) override;
  void on_tokens(const RequestRecord& request, SimTime previous, SimTime at_client,
                 std::int64_t num_tokens) override;
  void on_cohort_tokens(const CohortTokens& tokens) override;
  void on_tokens_withdrawn(std::span<const SimTime> at_client) override;
  void on_request_end(const RequestRecord& request) override;
  [[nodiscard]] bool wants_every_token() const override { return keep_detailed_; }

  /// The figures of a run that is over, or was cut as `summary` says. Reorders samples, so it is not const.
  [[nodiscard]] MetricsReport finish(const RunSummary& summary);

 private:
  void add_completed(const RequestRecord& request);
  void take_out(SimTime first_token, const std::vector<std::int64_t>& gaps);
  void count_chunks(SimTime at_client, std::int64_t count);
  [[nodiscard]] bool is_good(const RequestRecord& request) const;
  [[nodiscard]] std::int64_t second_of(SimTime time) const;

  GoodputLimits limits_;
  bool client_queues_;
  bool keep_gaps_;
  bool keep_detailed_;
  bool wants_quantiles_;

  std::optional<SimTime> first_send_;
  SimTime last_end_{};
  std::int64_t in_flight_ = 0;
  std::int64_t good_ = 0;
  MetricsReport counts_;  // Its counts are kept here as they grow; the statistics come in finish().

  // Gaps of the requests under way; a request's place is given to another when it is over.
  struct Spread {
    std::uint64_t operator()(std::uint64_t index) const { return engine::spread_bits(index); }
  };
  engine::FlatMap<std::uint64_t, std::size_t, Spread> place_of_;
  struct Tokens {
    SimTime first{};
    std::vector<std::int64_t> gaps;
  };
  std::vector<Tokens> gaps_;
  std::vector<std::size_t> free_places_;

  LatencySample ttft_, tpot_, e2el_, client_queue_, e2el_with_client_queue_, queue_, prefill_;
  GapPool itl_;
  // By second since the first send: chunks, and by how much more requests are under way than in the second
  // before.
  std::map<std::int64_t, std::int64_t> chunks_;
  std::int64_t* chunks_of_second_ = nullptr;  // The one counted in last, from...
  SimTime second_begin_{};
  std::map<std::int64_t, std::int64_t> concurrency_change_;
  std::vector<DetailedRequest> detailed_;
};

}  // namespace kneepoint::sim
