#include "sim/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace kneepoint::sim {
namespace {

constexpr int kWidth = 84;
constexpr int kLabelWidth = 44;
constexpr std::string_view kNone = "n/a";

// 19366 as 19,366.
std::string grouped(std::int64_t value) {
  std::string digits = fmt::format("{}", value);
  const std::size_t sign = value < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > sign + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string fixed(double value) {
  return fmt::format("{:.2f}", value);
}

std::string fixed(const std::optional<double>& value) {
  return value ? fixed(*value) : std::string(kNone);
}

std::string percent(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(whole))
                   : std::string(kNone);
}

class Table {
 public:
  void title(std::string_view text) { rule(text, '='); }
  void section(std::string_view text) { rule(text, '-'); }
  void row(std::string_view label, std::string_view value) {
    fmt::format_to(std::back_inserter(text_), "{:<{}}{}\n", fmt::format("{}:", label), kLabelWidth, value);
  }
  void line(std::string_view text) {
    text_ += text;
    text_ += '\n';
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  void rule(std::string_view text, char fill) {
    const auto width = static_cast<std::size_t>(kWidth);
    const std::string padded = text.empty() ? "" : fmt::format(" {} ", text);
    const std::size_t left = (width - padded.size()) / 2;
    text_ += std::string(left, fill) + padded + std::string(width - left - padded.size(), fill) + '\n';
  }

  std::string text_;
};

void add_counts(Table& table, const RunResult& result) {
  const MetricsReport& metrics = result.metrics;
  const ClientConfig& client = result.config.client;
  table.row("Successful requests", grouped(metrics.completed));
  table.row("Failed requests",
            fmt::format("{} ({})", grouped(metrics.failed), percent(metrics.failed, metrics.requests())));
  for (std::size_t i = 0; i < kNumRequestEnds; ++i) {
    const auto end = static_cast<RequestEnd>(i);
    if (!is_completed(end) && metrics.ended[i] > 0) {
      table.row(fmt::format("  {}", request_end_name(end)), grouped(metrics.ended[i]));
    }
  }
  if (result.summary.unfinished > 0) {
    table.row("Unfinished requests (the run was cut)", grouped(result.summary.unfinished));
  }
  table.row("Arrivals",
            !client.request_rate ? "at the trace's own times"
            : std::isinf(*client.request_rate)
                ? "all at once"
                : fmt::format("drawn, {} req/s, burstiness {}", *client.request_rate, client.burstiness));
  if (client.max_concurrency) {
    table.row("Maximum request concurrency", grouped(*client.max_concurrency));
  }
  table.row("Benchmark duration (s)", fixed(to_seconds(metrics.duration)));
  table.row("Total input tokens", grouped(metrics.total_input_tokens));
  table.row("Total generated tokens", grouped(metrics.total_output_tokens));
}

void add_throughput(Table& table, const RunResult& result) {
  const MetricsReport& metrics = result.metrics;
  table.row("Request throughput (req/s)", fixed(metrics.request_throughput));
  if (result.config.report.goodput.any()) {
    table.row("Request goodput (req/s)", fixed(metrics.request_goodput));
  }
  table.row("Output token throughput (tok/s)", fixed(metrics.output_throughput));
  table.row("Total token throughput (tok/s)", fixed(metrics.total_token_throughput));
  table.row("Fullest second (chunks)", grouped(metrics.max_chunks_per_s));
  table.row("Peak concurrent requests (in one second)", grouped(metrics.max_concurrent_requests));
}

void add_latencies(Table& table, const RunResult& result) {
  const MetricsReport& metrics = result.metrics;
  table.section("Latency (ms)");
  table.line(fmt::format("{:<28}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}", "", "mean", "std", "p50", "p90", "p95",
                         "p99", "max"));
  const auto row = [&](std::string_view label, const LatencyStats& stats) {
    std::string text = fmt::format("{:<28}", label);
    for (const double value : {stats.mean_ms, stats.std_ms, stats.p50_ms, stats.p90_ms, stats.p95_ms,
                               stats.p99_ms, stats.max_ms}) {
      // Seven places: two decimals where they fit, else one, else none.
      const int decimals = std::abs(value) < 9999.995 ? 2 : std::abs(value) < 99999.95 ? 1 : 0;
      text += stats.empty() ? fmt::format("{:>8}", kNone) : fmt::format(" {:>7.{}f}", value, decimals);
    }
    table.line(text);
  };
  row("Time to first token (TTFT)", metrics.ttft);
  row("  of it, in the queue", metrics.queue);
  row("  of it, prefill", metrics.prefill);
  row("Time per output token (TPOT)", metrics.tpot);
  row("Inter-token latency (ITL)", metrics.itl);
  row("End to end (E2EL)", metrics.e2el);
  if (result.config.client.max_concurrency) {
    row("Client's own queue, before", metrics.client_queue);
  }
  if (!metrics.itl_exact) {
    table.line("ITL percentiles are within 0.1 %: too many distinct values to keep each.");
  }
}

void add_server(Table& table, const RunResult& result) {
  const RunSummary& run = result.summary;
  const std::int64_t usable = run.num_blocks - 1;
  table.section("Server");
  table.row("Peak KV cache use", fmt::format("{} of {} blocks ({})", grouped(run.peak_used_blocks),
                                             grouped(usable), percent(run.peak_used_blocks, usable)));
  if (run.peak_memory_bytes > 0) {
    table.row("Peak memory of one GPU (GB)", fixed(run.peak_memory_bytes * 1e-9));
  }
  table.row("Preemptions", grouped(run.preemptions));
  table.row("Prefix cache hit rate", result.config.engine.enable_prefix_caching
                                         ? percent(run.prefix_hit_tokens, run.prefix_query_tokens)
                                         : "off");
  table.row("Running requests, mean / peak",
            fmt::format("{:.1f} / {}", run.mean_running, grouped(run.peak_running)));
  table.row("Waiting requests, mean / peak",
            fmt::format("{:.1f} / {}", run.mean_waiting, grouped(run.peak_waiting)));
  table.row("Steps", fmt::format("{}, {:.1f} tokens each", grouped(run.steps),
                                 run.steps > 0 ? static_cast<double>(run.scheduled_tokens) /
                                                     static_cast<double>(run.steps)
                                               : 0));
  table.row("GPU busy", percent(run.device_busy.count(), (run.end - run.first_send).count()));
}

// Where the waiting time went: what binds.
void add_wait_causes(Table& table, const RunSummary& run) {
  SimDuration total{0};
  for (const WaitCause& cause : run.wait_causes) {
    total += cause.time;
  }
  table.section("What requests waited for");
  if (total.count() == 0) {
    table.line("Nobody waited.");
    return;
  }
  std::vector<WaitCause> causes = run.wait_causes;
  std::stable_sort(causes.begin(), causes.end(),
                   [](const WaitCause& a, const WaitCause& b) { return a.time > b.time; });
  for (const WaitCause& cause : causes) {
    table.row(wait_cause_in_words(cause.cause),
              fmt::format("{:>7}  {} request-seconds", percent(cause.time.count(), total.count()),
                          fixed(to_seconds(cause.time))));
  }
}

void add_verdicts(Table& table, const RunResult& result) {
  const RunSummary& run = result.summary;
  if (!run.stopped_by.empty()) {
    table.line(fmt::format("PARTIAL: stopped by {}; {} requests unfinished, {} not sent.", run.stopped_by,
                           grouped(run.unfinished), grouped(result.num_unsent)));
  }
  if (run.overloaded) {
    table.line(fmt::format("OVERLOADED: {}.", run.overload_reason));
    table.line("Latencies and throughput are those of this trace only: a longer one would wait longer.");
  }
  if (run.hangs_from != kNever) {
    table.line(
        fmt::format("vLLM would hang from {:.3f} s on: {} requests need more KV blocks than there are.",
                    to_seconds(run.hangs_from), grouped(run.never_fit)));
  }
  if (run.storm) {
    table.line("PREEMPTION STORM: steps without end gave nobody a token, so the run was cut.");
  }
}

}  // namespace

std::string_view wait_cause_in_words(std::string_view cause) {
  struct Words {
    std::string_view cause, words;
  };
  static constexpr Words kWords[] = {
      {"next_step", "the next step (came during one)"},
      {"preempted", "room, after a preemption"},
      {"max_num_seqs", "max_num_seqs"},
      {"token_budget", "max_num_batched_tokens"},
      {"prompt_too_long", "a step with room for the whole prompt"},
      {"kv_blocks", "KV blocks"},
      {"output_in_flight", "output in flight"},
      {"adapter_slots", "a LoRA slot"},
      {"throttled", "prefill_schedule_interval"},
      {"draft_room", "room for drafts"},
  };
  const auto found = std::ranges::find(kWords, cause, &Words::cause);
  return found != std::end(kWords) ? found->words : cause;
}

std::string report_table(const RunResult& result) {
  Table table;
  table.title(result.summary.stopped_by.empty() ? "Simulated Serving Benchmark Result"
                                                : "Simulated Serving Benchmark Result, PARTIAL");
  add_verdicts(table, result);
  add_counts(table, result);
  add_throughput(table, result);
  add_latencies(table, result);
  add_server(table, result);
  add_wait_causes(table, result.summary);
  table.section("Where the numbers come from");
  for (const std::string& line : result.provenance) {
    table.line(line);
  }
  for (const InputFile& input : result.inputs) {
    table.line(fmt::format("{} {}: sha256 {}", input.role, input.name, input.sha256.substr(0, 16)));
  }
  for (const std::string& notice : result.summary.notices) {
    table.line(fmt::format("Note: {}", notice));
  }
  table.title("");
  return table.take();
}

}  // namespace kneepoint::sim
