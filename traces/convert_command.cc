// traces convert: other people's traces into ours, and ours into theirs.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "traces/arrival_options.h"
#include "traces/command_line.h"
#include "traces/export.h"
#include "traces/import.h"
#include "traces/subcommands.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

std::string format_list() {
  std::string text;
  for (const ImportFormat& format : import_formats()) {
    text += fmt::format("\n  {:<16} {}", format.name, format.summary);
  }
  return text;
}

struct ConvertArguments {
  ImportOptions import;
  ExportOptions to;
  ArrivalArguments arrivals;
  std::string time_unit;
  std::string in, out;
};

void add_options(CLI::App& app, ConvertArguments& a) {
  app.add_option("--from", a.import.format, "Format of IN; default: by its looks");
  app.add_option(
      "--to", a.to.format,
      fmt::format("Format of OUT ({}); default: by its ending", fmt::join(export_formats(), ", ")));
  app.add_option("--columns", a.import.columns, "Names of columns: arrival=ts,prompt=in,output=out");
  app.add_option("--time-unit", a.time_unit, "Unit of numbers in the arrival column: s, ms, us, ns");
  app.add_option("--block-size", a.import.block_size, "Tokens per hash id of IN; default the format's");
  app.add_option("--to-block-size", a.to.block_size, "Tokens per hash id of OUT, with --to timed-trace")
      ->capture_default_str();
  app.add_flag("--sort", a.import.sort, "Sort by arrival, in memory, and say how many rows moved");
  app.add_option("--skip-bad-rows", a.import.skip_bad_rows,
                 "Pass over up to N rows that cannot be read, and count them");
  app.add_flag("--recover", a.import.recover, "Keep what is whole of a file that was cut");
  add_arrival_options(app, a.arrivals);  // For formats without times.
  app.add_option("--chars-per-token", a.import.chars_per_token, "Estimate for ShareGPT's texts")
      ->capture_default_str();
  app.add_option("IN", a.in, "File to read; gzip and zstd are unpacked")->required();
  app.add_option("OUT", a.out, "File to write")->required();
}

}  // namespace

int run_convert(const Arguments& arguments) {
  ConvertArguments a;
  a.arrivals.options.process = "poisson";
  CLI::App app("Converts a workload between formats.", "traces convert");
  app.footer("Formats of IN:" + format_list() +
             "\n\nExample: traces convert --from azure AzureLLMInferenceTrace_conv.csv conv.pb\n"
             "         traces convert --columns arrival=ts,prompt=in,output=out log.csv log.pb\n"
             "         traces convert --to timed-trace --to-block-size 16 log.pb log.jsonl");
  add_options(app, a);
  if (const auto done = parse_arguments(app, arguments)) return *done;

  if (!a.time_unit.empty()) {
    a.import.time_unit = parse_time_unit(a.time_unit);
    if (!a.import.time_unit)
      throw TraceError(fmt::format("--time-unit {} is not known; known are s, ms, us, ns", a.time_unit));
  }
  for (const char* option : {"--arrivals", "--burstiness", "--cv", "--shape", "--states",
                             "--ramp-up-strategy", "--diurnal", "--spike", "--ramp", "--seed"}) {
    if (app.count(option) > 0 && app.count("--rate") == 0)
      throw TraceError(fmt::format("{} needs --rate", option));
  }
  if (app.count("--rate") > 0) a.import.arrivals = arrival_options(a.arrivals);
  if (a.to.format.empty()) a.to.format = format_of_ending(a.out);
  if (a.to.format.empty())
    throw TraceError(
        fmt::format("{}: the ending names no format; say --to {}", a.out, fmt::join(export_formats(), "|")));
  if (app.count("--to-block-size") > 0 && a.to.format != "timed-trace") {
    throw TraceError("--to-block-size needs --to timed-trace");
  }

  const auto records = import_trace(a.in, a.import);
  const std::string options = given_options(app);
  a.to.source =
      fmt::format("{}: {}{}{}", records->report().format, std::filesystem::path(a.in).filename().string(),
                  options.empty() ? "" : " ", options);
  const auto sink = export_trace(a.out, a.to);
  for (TraceRecord record; records->next(record);) sink->add(record);
  if (records->report().num_records == 0) throw TraceError(fmt::format("{}: holds no requests", a.in));
  sink->finish();
  const ImportReport& report = records->report();
  fmt::print("{}: {} requests, read as {}\n", a.out, report.num_records, report.format);
  for (const std::string& notice : report.notices)
    fmt::print(stderr, "traces convert: {}: {}\n", a.in, notice);
  for (const std::string& notice : sink->notices())
    fmt::print(stderr, "traces convert: {}: {}\n", a.out, notice);
  return 0;
}

}  // namespace kneepoint::traces
