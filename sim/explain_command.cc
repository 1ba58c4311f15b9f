#include "sim/explain_command.h"

#include <fmt/format.h>

#include <memory>
#include <vector>

#include "hw/deployment.h"
#include "hw/explain.h"
#include "hw/roofline_step.h"
#include "sim/command_line.h"
#include "sim/options.h"
#include "sim/output_files.h"
#include "sim/usage_error.h"
#include "sim/vllm_flags.h"

namespace kneepoint::sim {
namespace {

struct Options {
  hw::ExplainedStep step;
  std::string dot;
  std::string json;
};

void write_graphs(const RunConfig& config, const Options& options) {
  if (options.dot.empty() && options.json.empty()) {
    return;
  }
  const std::unique_ptr<hw::StepTimeModel> times =
      hw::make_step_time_model(config.deployment, config.rates_file);
  const auto& model = dynamic_cast<const hw::RooflineStep&>(*times);
  hw::OwnedStepShape owned;
  hw::fill_step_shape(config.deployment, options.step, owned);
  OutputFiles files{{}};
  if (!options.dot.empty()) {
    files.create_at(options.dot).write(hw::explain_dot(model, owned.shape));
  }
  if (!options.json.empty()) {
    files.create_at(options.json).write(hw::explain_json(model, owned.shape));
  }
  files.commit();
}

}  // namespace

int run_explain(std::span<const std::string> arguments) {
  Options options;
  CLI::App app("What one step costs, operator by operator. Besides these, every server flag of `simulate`.",
               "simulate explain");
  app.allow_extras();
  app.add_option("--batch", options.step.batch, "decodes in the step (default 1)")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--context", options.step.context, "tokens of context of each (default 1024)")
      ->check(CLI::Range(1, 100'000'000));
  app.add_option("--prompts", options.step.prompts, "prompts in the same step (default 0)")
      ->check(CLI::Range(0, 100'000));
  app.add_option("--prompt-tokens", options.step.prompt_tokens, "tokens computed of each prompt")
      ->check(CLI::Range(0, 100'000'000));
  app.add_option("--cached-tokens", options.step.cached_tokens,
                 "tokens of each prompt that are cached already")
      ->check(CLI::Range(0, 100'000'000));
  app.add_option("--dot", options.dot, "write the operator graph as Graphviz DOT to this file");
  app.add_option("--json", options.json, "write the operators and the graph as JSON to this file");
  app.footer("Example: simulate explain --model llama-3.1-8b --gpu h100 --batch 64 --context 2048");
  if (!parse_arguments(app, "explain", arguments)) {
    return 0;
  }
  if (options.step.prompt_tokens > 0 && options.step.prompts == 0) {
    options.step.prompts = 1;
  }
  if (options.step.batch == 0 && options.step.prompts == 0) {
    throw UsageError("explain: the step is empty; give --batch or --prompt-tokens");
  }
  const ParsedFlags parsed = parse_flags(app.remaining());
  const RunConfig config = resolve(parsed.config);
  if (!config.server_file.empty()) {
    throw UsageError("explain: a measured server has no operators; leave --server out");
  }
  write_stdout(hw::explain_text(hw::explain(config.deployment, options.step, config.rates_file)));
  write_graphs(config, options);
  return 0;
}

}  // namespace kneepoint::sim
