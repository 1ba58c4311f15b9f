// traces info, traces verify: what a trace holds, and whether it is whole.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <unordered_set>

#include "traces/atomic_file.h"
#include "traces/command_line.h"
#include "traces/rate_plot.h"
#include "traces/statistics.h"
#include "traces/subcommands.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

constexpr std::size_t kFineWindows = 240;  // Of the plot and the bursts,
constexpr std::size_t kTableWindows = 12;  // and of the table.

double seconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) * 1e-9;
}

struct Summary {
  explicit Summary(const TraceInfo& info, std::int64_t block_size)
      : fine(info.last_arrival, kFineWindows), coarse(info.last_arrival, kTableWindows), reuse(block_size) {}

  void add(const TraceRecord& record) {
    intervals.add(record.arrival);
    prompts.add(record.prompt_tokens);
    outputs.add(record.output_tokens);
    fine.add(record.arrival);
    coarse.add(record.arrival);
    shared += record.prompt.empty() ? 0 : 1;
    if (record.session != kNoSession) sessions.insert(record.session);
    later_turns += record.after_previous ? 1 : 0;
    reuse.add(record);
  }

  IntervalStatistics intervals;
  LengthCounts prompts, outputs;
  RateWindows fine, coarse;
  PrefixReuse reuse;
  std::uint64_t shared = 0, later_turns = 0;
  std::unordered_set<std::uint64_t> sessions;
};

void print_lengths(std::string_view name, const LengthCounts& counts) {
  fmt::print("{:<16}{:>10.1f}", name, counts.mean());
  for (const double p : {0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0})
    fmt::print("{:>9}", counts.percentile(p));
  fmt::print("\n");
}

void print_bursts(const Summary& summary) {
  auto found = bursts(summary.fine);
  fmt::print("\nbursts          windows of {:.3g} s above mean + 3 sqrt(mean): {}\n", summary.fine.window_s,
             found.size());
  if (found.empty()) return;
  std::ranges::stable_sort(found, std::greater<>(), &Burst::requests);
  if (found.size() > 10) found.resize(10);
  fmt::print("{:>12}{:>12}{:>12}{:>14}\n", "from s", "to s", "requests", "requests/s");
  for (const Burst& burst : found) {
    const double length = summary.fine.window_s * static_cast<double>(burst.last - burst.first + 1);
    const double from = summary.fine.window_s * static_cast<double>(burst.first);
    fmt::print("{:>12.1f}{:>12.1f}{:>12}{:>14.2f}\n", from, from + length, burst.requests,
               static_cast<double>(burst.requests) / length);
  }
}

void print_summary(const TraceInfo& info, const Summary& s) {
  const double span = seconds(info.last_arrival);
  fmt::print("source          {}\n", info.source);
  fmt::print("requests        {}\n", info.num_records);
  fmt::print("span            {:.3f} s\n", span);
  if (span > 0)
    fmt::print("rate            {:.3f} requests/s\n", static_cast<double>(info.num_records) / span);
  fmt::print("intervals       CV {:.3f}, correlation with the next {:.3f}\n", s.intervals.cv(),
             s.intervals.autocorrelation());
  if (!s.sessions.empty()) {
    fmt::print("sessions        {}, {} requests wait for the answer before\n", s.sessions.size(),
               s.later_turns);
  }
  if (s.shared > 0) {
    fmt::print("prefix reuse    {:.1f} % of {} full prompt blocks of {} tokens came before\n",
               100 * s.reuse.share(), s.reuse.prompt_blocks(), s.reuse.block_size());
  } else {
    fmt::print("prefix reuse    prompts share nothing\n");
  }
  fmt::print("\n{:<16}{:>10}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}\n", "tokens", "mean", "min", "p25",
             "p50", "p75", "p90", "p95", "p99", "max");
  print_lengths("prompt", s.prompts);
  print_lengths("output", s.outputs);
  fmt::print("\n{:>12}{:>12}{:>12}{:>14}\n", "from s", "to s", "requests", "requests/s");
  for (std::size_t i = 0; i < s.coarse.counts.size(); ++i) {
    fmt::print("{:>12.1f}{:>12.1f}{:>12}{:>14.2f}\n", s.coarse.window_s * static_cast<double>(i),
               s.coarse.window_s * static_cast<double>(i + 1), s.coarse.counts[i], s.coarse.rate(i));
  }
  print_bursts(s);
}

}  // namespace

int run_info(const Arguments& arguments) {
  std::string path, plot;
  std::int64_t block_size = 16;
  CLI::App app("Says what a trace holds.", "traces info");
  app.footer("Example: traces info --plot bursty.svg bursty.pb");
  app.add_option("--plot", plot, "Write the rate over time as an SVG picture");
  app.add_option("--block-size", block_size, "Tokens per block of the prefix reuse")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  app.add_option("FILE.pb", path, "Trace to read")->required();
  if (const auto done = parse_arguments(app, arguments)) return *done;

  TraceReader reader(path);
  Summary summary(reader.info(), block_size);
  for (TraceRecord record; reader.next(record);) summary.add(record);
  if (!plot.empty()) {
    AtomicFile file(plot);
    file.write(
        rate_plot(std::filesystem::path(path).filename().string(), summary.fine, bursts(summary.fine)));
    file.commit();
  }
  print_summary(reader.info(), summary);
  fmt::print("\nsha256          {}\n", reader.sha256());
  return 0;
}

int run_verify(const Arguments& arguments) {
  std::string path;
  CLI::App app("Checks every checksum, order and field of a trace.", "traces verify");
  app.footer("Example: traces verify bursty.pb");
  app.add_option("FILE.pb", path, "Trace to read")->required();
  if (const auto done = parse_arguments(app, arguments)) return *done;

  TraceReader reader(path);
  for (TraceRecord record; reader.next(record);) {
  }
  fmt::print("{}: {} requests, whole; sha256 {}\n", path, reader.info().num_records, reader.sha256());
  return 0;
}

}  // namespace kneepoint::traces
