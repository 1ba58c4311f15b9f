#include "sim/matrix_command.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <string_view>
#include <vector>

#include "sim/command_line.h"
#include "sim/matrix.h"
#include "sim/matrix_report.h"
#include "sim/options.h"
#include "sim/output_files.h"
#include "sim/progress.h"
#include "sim/usage_error.h"
#include "sim/vllm_flags.h"

namespace kneepoint::sim {
namespace {

struct Options {
  MatrixOptions matrix;
  std::string contexts;
  std::string concurrencies;
  std::string out;
  std::string format = "table";
};

// Fields of a run config that the matrix sets itself, or that belong to one run.
constexpr std::array kOwn{"trace",  "server",        "request_rate", "burstiness", "max_concurrency", "out",
                          "format", "save_detailed", "requests_csv", "step_log",   "goodput"};

void refuse_own(const pb::RunConfig& asked) {
  std::vector<const google::protobuf::FieldDescriptor*> given;
  pb::RunConfig::GetReflection()->ListFields(asked, &given);
  for (const auto* field : given) {
    if (std::ranges::find(kOwn, std::string_view(field->name())) != kOwn.end()) {
      std::string flag = field->name();
      std::ranges::replace(flag, '_', '-');
      throw UsageError(fmt::format("matrix: --{} has no place in the matrix; leave it out", flag));
    }
  }
}

// "8K,32K" as vLLM reads sizes.
std::vector<std::int64_t> sizes(const char* flag, const std::string& text) {
  std::vector<std::int64_t> values;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    values.push_back(parse_size(flag, text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return values;
}

void declare(CLI::App& app, Options& options) {
  app.allow_extras();
  app.add_option("--contexts", options.contexts,
                 "tokens of prompt and answer together (default 8K,32K,64K,128K)");
  app.add_option("--concurrencies", options.concurrencies, "requests under way (default 1,5,10,25,50,100)");
  app.add_option("--num-prompts", options.matrix.num_requests, "requests a cell (default 1000)");
  app.add_option("--output-len", options.matrix.output_tokens, "tokens of an answer (default 128)");
  app.add_option("--prefix-len", options.matrix.prefix_tokens,
                 "first tokens of each prompt that all share (default 0)");
  app.add_option("--random-range-ratio", options.matrix.random_range_ratio,
                 "lengths uniform within this share of the mean (default 0: fixed)");
  app.add_option("--out", options.out, "folder for matrix.json, matrix.csv and checksums.sha256");
  app.add_option("--format", options.format, "table (default), json, csv")
      ->check(CLI::IsMember({"table", "json", "csv"}));
  app.add_option("--threads", options.matrix.threads, "default: one per core; changes no result")
      ->check(CLI::Range(1, 4096));
  app.footer(
      "Example: simulate matrix --model llama-3.1-8b --gpu h100 --quantization fp8 --out matrix\n"
      "         simulate matrix vllm serve Qwen/Qwen3-32B -tp 2 --kv-cache-dtype fp8 "
      "--no-enable-prefix-caching");
}

// Every notice of any cell, once.
void print_notices(const Matrix& matrix, const std::vector<std::string>& without_influence) {
  if (!without_influence.empty()) {
    fmt::print(stderr, "simulate: without influence here: {}\n", fmt::join(without_influence, " "));
  }
  std::set<std::string> notices;
  for (const MatrixCell& cell : matrix.cells) {
    if (cell.run) {
      notices.insert(cell.run->run.summary.notices.begin(), cell.run->run.summary.notices.end());
    }
  }
  for (const std::string& notice : notices) {
    fmt::print(stderr, "simulate: {}\n", notice);
  }
}

}  // namespace

int run_matrix_command(std::span<const std::string> arguments) {
  Options options;
  CLI::App app(
      "The standard benchmark: a closed loop of 1 to 100 clients by contexts of 8K to 128K, as `vllm bench\n"
      "serve --max-concurrency` runs it, where it fits. Besides these, every server flag of `simulate`.",
      "simulate matrix");
  declare(app, options);
  if (!parse_arguments(app, "matrix", arguments)) {
    return 0;
  }
  const ParsedFlags parsed = parse_flags(app.remaining());
  const pb::RunConfig asked = asked_for(parsed);
  refuse_own(asked);
  if (!options.contexts.empty()) {
    options.matrix.contexts = sizes("contexts", options.contexts);
  }
  if (!options.concurrencies.empty()) {
    options.matrix.concurrencies = sizes("concurrencies", options.concurrencies);
  }
  OutputFiles files(options.out);
  Progress progress(options.matrix.contexts.size() * options.matrix.concurrencies.size(), "cells");
  const Matrix matrix = run_matrix(asked, options.matrix, [&] { progress.one_over(); });
  progress.clear();
  if (files.has_folder()) {
    files.create("matrix.json").write(matrix_json(matrix));
    files.create("matrix.csv").write(matrix_csv(matrix));
    files.commit();
  }
  write_stdout(options.format == "json"  ? matrix_json(matrix)
               : options.format == "csv" ? matrix_csv(matrix)
                                         : matrix_table(matrix));
  print_notices(matrix, parsed.without_influence);
  return 0;
}

}  // namespace kneepoint::sim
