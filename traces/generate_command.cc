// traces generate: a workload from distributions.
#include <fmt/format.h>

#include "traces/command_line.h"
#include "traces/generate.h"
#include "traces/subcommands.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

std::string process_names() {
  std::string text;
  for (const ArrivalProcessRow& row : arrival_processes()) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", row.name, row.summary);
  }
  return text;
}

}  // namespace

int run_generate(const Arguments& arguments) {
  GenerateOptions options;
  ArrivalOptions& arrivals = options.arrivals;
  std::int64_t prompt_tokens = 1024, output_tokens = 256;
  double range_ratio = 0;
  std::string out;

  CLI::App app("Writes a workload drawn from distributions.", "traces generate");
  app.footer(
      "Example: traces generate --arrivals gamma --burstiness 0.2 --rate 25 --requests 10000 "
      "--prompt-tokens 1024 --output-tokens 256 --random-range-ratio 0.5 --seed 1 bursty.pb");
  app.add_option("--arrivals", arrivals.process, "Arrival process: " + process_names())->required();
  app.add_option("--rate", arrivals.rate, "Mean requests a second")->required();
  app.add_option("--requests", arrivals.num_requests, "How many requests")
      ->required()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  app.add_option("--burstiness", arrivals.burstiness,
                 "Shape of gamma intervals; 1 is Poisson, below 1 bursts");
  app.add_option("--prompt-tokens", prompt_tokens, "Mean prompt length")->capture_default_str();
  app.add_option("--output-tokens", output_tokens, "Mean answer length")->capture_default_str();
  app.add_option("--random-range-ratio", range_ratio, "R: lengths uniform in [floor(L(1-R)), ceil(L(1+R))]")
      ->capture_default_str();
  app.add_option("--seed", arrivals.seed, "Seed of all random streams")->capture_default_str();
  app.add_option("OUT.pb", out, "Trace to write")->required();
  if (const auto done = parse_arguments(app, arguments)) return *done;
  if (arrivals.burstiness && arrivals.process != "gamma") {
    throw TraceError(fmt::format("--burstiness belongs to --arrivals gamma, not {}", arrivals.process));
  }

  options.prompt_lengths = uniform_lengths(prompt_tokens, range_ratio);
  options.output_lengths = uniform_lengths(output_tokens, range_ratio);
  const std::string source = "traces generate " + given_options(app);
  const auto records = generate(std::move(options));
  TraceWriter writer(out, source);
  for (TraceRecord record; records->next(record);) writer.add(record);
  writer.finish();
  return 0;
}

}  // namespace kneepoint::traces
