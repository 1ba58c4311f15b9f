// traces info, traces verify: what a trace holds, and whether it is whole.
#include <fmt/format.h>

#include "traces/command_line.h"
#include "traces/subcommands.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

double seconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) * 1e-9;
}

}  // namespace

int run_info(const Arguments& arguments) {
  std::string path;
  CLI::App app("Says what a trace holds.", "traces info");
  app.footer("Example: traces info bursty.pb");
  app.add_option("FILE.pb", path, "Trace to read")->required();
  if (const auto done = parse_arguments(app, arguments)) return *done;

  TraceReader reader(path);
  double prompt_sum = 0, output_sum = 0;
  for (TraceRecord record; reader.next(record);) {
    prompt_sum += static_cast<double>(record.prompt_tokens);
    output_sum += static_cast<double>(record.output_tokens);
  }
  const TraceInfo& info = reader.info();
  const auto count = static_cast<double>(info.num_records);
  fmt::print("source          {}\n", info.source);
  fmt::print("requests        {}\n", info.num_records);
  fmt::print("span            {:.3f} s\n", seconds(info.last_arrival));
  if (info.last_arrival.count() > 0)
    fmt::print("rate            {:.3f} requests/s\n", count / seconds(info.last_arrival));
  if (count > 0) {
    fmt::print("prompt tokens   {:.1f} mean\n", prompt_sum / count);
    fmt::print("output tokens   {:.1f} mean\n", output_sum / count);
  }
  fmt::print("sha256          {}\n", reader.sha256());
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
