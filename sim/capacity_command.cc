#include "sim/capacity_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "hw/capacity.h"
#include "sim/command_line.h"
#include "sim/options.h"
#include "sim/output_files.h"
#include "sim/usage_error.h"

namespace kneepoint::sim {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model;
  std::string gpu;
  std::string quantization = "fp8";
  std::string memory_model = "planner";
  std::string format = "table";
};

struct Scenario {
  std::string model;
  std::string gpu;
};

// One scenario by the planner and, if asked for, by vLLM's sizing.
struct Matrix {
  std::string title;
  hw::ScenarioMatrix planner;
  std::optional<hw::ScenarioMatrix> vllm;
};

constexpr std::array kMemoryTableModels = {"llama-3.1-8b", "llama-3.3-70b", "qwen2.5-7b", "qwen3-32b",
                                           "qwen3-30b-a3b"};

hw::Precision precision_of(const std::string& quantization) {
  if (quantization == "fp8") {
    return hw::Precision::kFp8;
  }
  if (quantization == "bf16" || quantization == "bfloat16" || quantization == "none") {
    return hw::Precision::kBf16;
  }
  if (quantization == "int4" || quantization == "awq" || quantization == "gptq") {
    return hw::Precision::kInt4;
  }
  throw UsageError(fmt::format("--quantization '{}' is not known; give fp8, int4 or none", quantization));
}

// The deployment vLLM would size: its defaults, one GPU, the same weights.
hw::ScenarioMatrix by_vllm(const Scenario& scenario, hw::Precision weights) {
  hw::Deployment deployment;
  deployment.model = hw::load_model(scenario.model);
  deployment.gpu = hw::load_gpu(scenario.gpu);
  deployment.weights = weights;
  const DeviceDefaults device = device_defaults(deployment.gpu);
  deployment.max_num_batched_tokens = device.batched_tokens;
  deployment.max_num_seqs = device.seqs;
  deployment.max_model_len = deployment.model.max_position_embeddings;
  return hw::scenario_matrix_by_vllm(deployment);
}

Matrix make_matrix(const Scenario& scenario, const Options& options) {
  const hw::Precision weights = precision_of(options.quantization);
  const hw::ModelArch model = hw::load_model(scenario.model);
  const hw::GpuSpec gpu = hw::load_gpu(scenario.gpu);
  Matrix matrix;
  matrix.title = fmt::format("{}, {}, 1x {}", model.name, options.quantization, gpu.full_name);
  matrix.planner = hw::scenario_matrix(model, gpu, weights);
  if (options.memory_model == "vllm") {
    matrix.vllm = by_vllm(scenario, weights);
  }
  return matrix;
}

std::string most_text(const hw::ScenarioRow& row) {
  return row.most_sequences ? fmt::format("{}", *row.most_sequences)
                            : std::string(hw::fit_mark(row.cells.front()));
}

// Marks are one column wide but several bytes long.
std::string centred(std::string_view text, std::size_t width) {
  const auto columns = static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
  return fmt::format("{:>{}}{}", "", width > columns ? width - columns : 0, text);
}

void append_matrix(std::string& text, const char* by, const hw::ScenarioMatrix& matrix,
                   const hw::ScenarioMatrix* other) {
  text +=
      fmt::format("  {:<26}", fmt::format("{}: KV {} GB", by, hw::budget_gb_text(matrix.kv_budget_bytes)));
  for (const hw::ScenarioRow& row : matrix.rows) {
    text += fmt::format("{:>12}", fmt::format("{}K", row.context / 1024));
  }
  text += fmt::format("\n    {:<24}", "most sequences");
  for (const hw::ScenarioRow& row : matrix.rows) {
    text += centred(most_text(row), 12);
  }
  text += fmt::format("\n    {:<24}", "which fit");
  for (const hw::ScenarioRow& row : matrix.rows) {
    text += centred(hw::fitting_text(row), 12);
  }
  for (std::size_t i = 0; i < hw::kPlannerConcurrencies.size(); ++i) {
    text += fmt::format("\n    {:<24}", fmt::format("concurrency {}", hw::kPlannerConcurrencies[i]));
    for (std::size_t j = 0; j < matrix.rows.size(); ++j) {
      const bool differs = other != nullptr && other->rows[j].cells[i] != matrix.rows[j].cells[i];
      text += centred(fmt::format("{}{}", hw::fit_mark(matrix.rows[j].cells[i]), differs ? "!" : ""), 12);
    }
  }
  text += "\n";
}

std::string fewest_text(const hw::ModelArch& model) {
  std::vector<std::string> counts;
  for (const char* gpu : {"h100", "h200", "l40s"}) {
    counts.push_back(fmt::format("{}", hw::fewest_gpus(model, hw::load_gpu(gpu))));
  }
  return fmt::format("{}", fmt::join(counts, " / "));
}

void append_memory_table(std::string& text, const std::vector<std::string>& models) {
  text += fmt::format("{:<16}{:<24}{:>10}{:>24}{:>14}{:>12}{:>26}\n", "model", "kind", "params, B",
                      "BF16 / FP8 / INT4, GB", "KV/token, KiB", "KV at 32K", "fewest H100 / H200 / L40S");
  for (const std::string& name : models) {
    const hw::ModelArch model = hw::load_model(name);
    const hw::MemoryRow row = hw::memory_row(model);
    const std::string weights =
        fmt::format("{} / {} / {}", hw::weights_gb_text(row.bf16_bytes), hw::weights_gb_text(row.fp8_bytes),
                    hw::weights_gb_text(row.int4_bytes));
    text += fmt::format("{:<16}{:<24}{:>10}{:>24}{:>14}{:>12}{:>26}\n", row.name, row.kind,
                        hw::parameters_text(row.parameter_tenths), weights, row.kv_bytes_per_token / 1024,
                        hw::kv_gb_text(row.kv_bytes_at_32k), fewest_text(model));
  }
}

Json matrix_json(const hw::ScenarioMatrix& matrix) {
  Json json;
  json["kv_budget_gb"] = hw::budget_gb_text(matrix.kv_budget_bytes);
  for (const hw::ScenarioRow& row : matrix.rows) {
    Json cells = Json::object();
    for (std::size_t i = 0; i < row.cells.size(); ++i) {
      cells[fmt::format("{}", hw::kPlannerConcurrencies[i])] = hw::fit_mark(row.cells[i]);
    }
    Json entry;
    entry["context"] = row.context;
    entry["most_sequences"] = row.most_sequences ? Json(*row.most_sequences) : Json(nullptr);
    entry["fits"] = cells;
    json["contexts"].push_back(entry);
  }
  return json;
}

Json memory_json(const std::string& name) {
  const hw::ModelArch model = hw::load_model(name);
  const hw::MemoryRow row = hw::memory_row(model);
  Json json;
  json["model"] = row.name;
  json["kind"] = row.kind;
  json["parameters_b"] = hw::parameters_text(row.parameter_tenths);
  json["weights_gb"] = {{"bf16", hw::weights_gb_text(row.bf16_bytes)},
                        {"fp8", hw::weights_gb_text(row.fp8_bytes)},
                        {"int4", hw::weights_gb_text(row.int4_bytes)}};
  json["kv_kib_per_token"] = row.kv_bytes_per_token / 1024;
  json["kv_gb_at_32k"] = hw::kv_gb_text(row.kv_bytes_at_32k);
  for (const char* gpu : {"h100", "h200", "l40s"}) {
    json["fewest_gpus"][gpu] = hw::fewest_gpus(model, hw::load_gpu(gpu));
  }
  return json;
}

std::string as_json(const std::vector<Matrix>& matrices, const std::vector<std::string>& models) {
  Json json;
  for (const Matrix& matrix : matrices) {
    Json entry;
    entry["scenario"] = matrix.title;
    entry["planner"] = matrix_json(matrix.planner);
    if (matrix.vllm) {
      entry["vllm"] = matrix_json(*matrix.vllm);
    }
    json["scenarios"].push_back(entry);
  }
  for (const std::string& model : models) {
    json["memory"].push_back(memory_json(model));
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string as_table(const std::vector<Matrix>& matrices, const std::vector<std::string>& models) {
  std::string text;
  for (const Matrix& matrix : matrices) {
    text += matrix.title + "\n";
    append_matrix(text, "planner", matrix.planner, matrix.vllm ? &*matrix.vllm : nullptr);
    if (matrix.vllm) {
      append_matrix(text, "vLLM's sizing", *matrix.vllm, &matrix.planner);
    }
    text += "\n";
  }
  text += "  ✓ fits   — KV exceeded: not applicable, not run   ✕ weights do not fit   n/a no such context";
  text += std::any_of(matrices.begin(), matrices.end(), [](const Matrix& m) { return m.vllm.has_value(); })
              ? "   ! the two disagree\n\n"
              : "\n\n";
  append_memory_table(text, models);
  return text;
}

}  // namespace

int run_capacity(std::span<const std::string> arguments) {
  Options options;
  CLI::App app(
      "What limits concurrency: KV capacity and weights, computed. Latency under load has to be simulated.",
      "simulate capacity");
  app.add_option("--model", options.model, "one model, by bundled name or config.json");
  app.add_option("--gpu", options.gpu, "one GPU; default h100 with --model");
  app.add_option("--quantization", options.quantization, "fp8 (default), int4, none");
  app.add_option("--memory-model", options.memory_model,
                 "planner (default) or vllm: both, marking where they disagree")
      ->check(CLI::IsMember({"planner", "vllm"}));
  app.add_option("--format", options.format, "table (default) or json")
      ->check(CLI::IsMember({"table", "json"}));
  app.footer(
      "Example: simulate capacity --model qwen3-32b --gpu h200 --quantization fp8 --memory-model vllm");
  if (!parse_arguments(app, "capacity", arguments)) {
    return 0;
  }
  std::vector<Scenario> scenarios = {{"llama-3.1-8b", "h100"}, {"qwen3-32b", "h200"}};
  std::vector<std::string> models(kMemoryTableModels.begin(), kMemoryTableModels.end());
  if (!options.model.empty() || !options.gpu.empty()) {
    const std::string model = options.model.empty() ? "llama-3.1-8b" : options.model;
    scenarios = {{model, options.gpu.empty() ? "h100" : options.gpu}};
    models = {model};
  }
  std::vector<Matrix> matrices;
  for (const Scenario& scenario : scenarios) {
    matrices.push_back(make_matrix(scenario, options));
  }
  write_stdout(options.format == "json" ? as_json(matrices, models) : as_table(matrices, models));
  return 0;
}

}  // namespace kneepoint::sim
