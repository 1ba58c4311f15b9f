// traces generate: a workload from distributions.
#include <fmt/format.h>

#include "traces/arrival_options.h"
#include "traces/command_line.h"
#include "traces/generate.h"
#include "traces/subcommands.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

struct GenerateArguments {
  ArrivalArguments arrivals;
  std::uint64_t num_requests = 0;
  std::string prompt_tokens = "1024", output_tokens = "256";
  double range_ratio = 0, correlation = 0;
  std::string lengths_from;
  SystemPrompts system_prompts;
  SessionOptions sessions;
  std::string turns, tool_calls, tool_tokens = "256";
  std::string out;
};

void add_options(CLI::App& app, GenerateArguments& a) {
  add_arrival_options(app, a.arrivals);
  app.get_option("--arrivals")->required();
  app.get_option("--rate")->required();
  app.add_option("--requests", a.num_requests, "How many requests")
      ->required()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  constexpr const char* kForms = ": N, uniform:LOW:HIGH, lognormal:MEAN:CV or zipf:EXPONENT:MAX";
  app.add_option("--prompt-tokens", a.prompt_tokens, std::string("Prompt length") + kForms)
      ->capture_default_str();
  app.add_option("--output-tokens", a.output_tokens, std::string("Answer length") + kForms)
      ->capture_default_str();
  app.add_option("--random-range-ratio", a.range_ratio,
                 "R: a length N is drawn uniformly from [floor(N(1-R)), ceil(N(1+R))]")
      ->capture_default_str();
  app.add_option("--length-correlation", a.correlation, "Of prompt and answer lengths, by a Gaussian copula")
      ->capture_default_str();
  app.add_option("--lengths-from", a.lengths_from, "Draw pairs of lengths from this trace instead");
  app.add_option("--system-prompts", a.system_prompts.count, "Each prompt begins with one of so many texts")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 22));
  app.add_option("--system-prompt-tokens", a.system_prompts.tokens,
                 "Their length; it comes on top of --prompt-tokens");
  app.add_option("--system-prompt-zipf", a.system_prompts.zipf, "The k-th is chosen with weight k^-Z")
      ->capture_default_str();
  app.add_option("--turns", a.turns,
                 "Turns of a session, in the forms of a length; --rate then counts sessions");
  app.add_option("--think-time", a.sessions.think_s, "Mean seconds from an answer to the next turn")
      ->capture_default_str();
  app.add_option("--tool-calls", a.tool_calls, "Tool calls within a turn, in the forms of a length");
  app.add_option("--tool-tokens", a.tool_tokens, "Length of a tool's result")->capture_default_str();
  app.add_option("--tool-time", a.sessions.tool_s, "Mean seconds a tool takes")->capture_default_str();
  app.add_option("--max-context", a.sessions.max_context,
                 "A session ends before prompt and answer exceed so many tokens");
  app.add_option("--nominal-tpot", a.sessions.nominal_tpot_s,
                 "Seconds per answer token that place a later turn in the file")
      ->capture_default_str();
  app.add_option("OUT.pb", a.out, "Trace to write")->required();
}

// An option without another one that gives it a meaning is a misunderstanding.
void check_pairs(const CLI::App& app) {
  const auto needs = [&app](const char* option, const char* other) {
    if (app.count(option) > 0 && app.count(other) == 0)
      throw TraceError(fmt::format("{} needs {}", option, other));
  };
  for (const char* option : {"--system-prompt-tokens", "--system-prompt-zipf"})
    needs(option, "--system-prompts");
  needs("--system-prompts", "--system-prompt-tokens");
  for (const char* option : {"--think-time", "--tool-calls", "--max-context", "--nominal-tpot"})
    needs(option, "--turns");
  for (const char* option : {"--tool-tokens", "--tool-time"}) needs(option, "--tool-calls");
  for (const char* option : {"--ramp-up-start-rps", "--ramp-up-end-rps"}) needs(option, "--ramp-up-strategy");
  needs("--period", "--diurnal");
  for (const char* option :
       {"--prompt-tokens", "--output-tokens", "--random-range-ratio", "--length-correlation"}) {
    if (app.count(option) > 0 && app.count("--lengths-from") > 0) {
      throw TraceError(fmt::format("{} and --lengths-from say the same; give one", option));
    }
  }
}

GenerateOptions understand(GenerateArguments a) {
  GenerateOptions options;
  options.arrivals = arrival_options(a.arrivals);
  options.arrivals.num_requests = a.num_requests;
  const std::uint64_t seed = options.arrivals.seed;
  options.lengths = a.lengths_from.empty()
                        ? model_pairs(parse_lengths(a.prompt_tokens, a.range_ratio),
                                      parse_lengths(a.output_tokens, a.range_ratio), a.correlation, seed)
                        : empirical_pairs(a.lengths_from, seed);
  options.system_prompts = a.system_prompts;
  options.sessions = std::move(a.sessions);
  if (!a.turns.empty()) options.sessions.turns = parse_lengths(a.turns, 0);
  if (!a.tool_calls.empty()) {
    options.sessions.tool_calls = parse_lengths(a.tool_calls, 0);
    options.sessions.tool_tokens = parse_lengths(a.tool_tokens, 0);
  }
  return options;
}

}  // namespace

int run_generate(const Arguments& arguments) {
  GenerateArguments a;
  CLI::App app("Writes a workload drawn from distributions.", "traces generate");
  app.footer(
      "Examples:\n"
      "  traces generate --arrivals gamma --burstiness 0.2 --rate 25 --requests 10000 --prompt-tokens 1024 "
      "--output-tokens 256 --random-range-ratio 0.5 --seed 1 bursty.pb\n"
      "  traces generate --arrivals poisson --rate 2 --requests 5000 --turns uniform:1:9 --think-time 20 "
      "--system-prompts 8 --system-prompt-tokens 512 chat.pb\n"
      "  traces generate --arrivals poisson --rate 1 --requests 5000 --turns 2 --tool-calls uniform:3:12 "
      "--tool-tokens lognormal:400:1.5 --tool-time 2 agents.pb");
  add_options(app, a);
  if (const auto done = parse_arguments(app, arguments)) return *done;
  check_pairs(app);
  const std::string out = a.out;
  const auto records = generate(understand(std::move(a)));
  TraceWriter writer(out, "traces generate " + given_options(app));
  for (TraceRecord record; records->next(record);) writer.add(record);
  writer.finish();
  return 0;
}

}  // namespace kneepoint::traces
