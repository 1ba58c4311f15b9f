#include "calibrate/serving_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "calibrate/calibrate_error.h"
#include "calibrate/csv_table.h"
#include "calibrate/recorded_runs.h"
#include "hw/gpu_spec.h"
#include "hw/model_arch.h"
#include "hw/spec_error.h"

namespace kneepoint::calibrate {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// "h100_sxm", "H100", "H100-SXM5-80GB" are h100: a known name, then nothing, or
// what a form factor is set apart by. Hyphens in a known name may be left out.
std::string known_gpu(const std::string& written) {
  const std::string name = lower(written);
  for (const std::string& known : hw::gpu_names()) {
    std::string joined = known;
    std::erase(joined, '-');
    for (const std::string& spelling : {known, joined}) {
      const bool ends = name.size() == spelling.size() ||
                        (name.size() > spelling.size() && std::isalnum(static_cast<unsigned char>(name[spelling.size()])) == 0);
      if (name.starts_with(spelling) && ends) {
        return known;
      }
    }
  }
  return "";
}

std::optional<bool> maybe_flag(const CsvTable& table, std::size_t i, std::string_view column) {
  const auto value = table.maybe_integer(i, column);
  return value ? std::optional<bool>(*value != 0) : std::nullopt;
}

ServingSetup common_setup(const CsvTable& table, std::size_t i) {
  ServingSetup setup;
  setup.kv_cache_dtype = table.text(i, "kv_cache_dtype");
  setup.max_num_seqs = table.maybe_integer(i, "max_num_seqs");
  setup.max_num_batched_tokens = table.maybe_integer(i, "max_num_batched_tokens");
  setup.max_model_len = table.maybe_integer(i, "max_model_len");
  setup.block_size = table.maybe_integer(i, "block_size");
  setup.gpu_memory_utilization = table.maybe_number(i, "gpu_memory_utilization");
  setup.prefix_caching = maybe_flag(table, i, "prefix_caching");
  setup.async_scheduling = maybe_flag(table, i, "async_scheduling");
  return setup;
}

ServingRow closed_loop_row(const CsvTable& table, std::size_t i) {
  ServingRow row;
  row.setup = common_setup(table, i);
  row.setup.model = table.text(i, "model_path");
  row.setup.weights = table.text(i, "precision");
  row.setup.static_scales = true;  // aiconfigurator's "fp8" is one scale a tensor, from the checkpoint.
  row.setup.vllm_version = table.text(i, "backend_version");
  row.setup.tensor_parallel_size = table.integer(i, "tp_size");
  row.setup.attention_dp_size = table.maybe_integer(i, "attention_dp_size").value_or(1);
  ClosedLoopClient client;
  client.input_tokens = table.integer(i, "isl");
  client.output_tokens = table.integer(i, "osl");
  client.concurrency = table.integer(i, "concurrency");
  client.requests = table.maybe_integer(i, "requests").value_or(10 * client.concurrency);
  client.min_fraction = table.maybe_number(i, "length_min_fraction").value_or(1);
  client.jitter_ms = table.maybe_number(i, "client_jitter_ms").value_or(0);
  if (client.input_tokens < 1 || client.output_tokens < 1 || client.concurrency < 1 || client.requests < 1 ||
      client.min_fraction <= 0 || client.min_fraction > 1 || client.jitter_ms < 0) {
    throw CalibrateError(fmt::format("{}: line {}: lengths, concurrency and requests must be at least 1, "
                                     "length_min_fraction in (0, 1], client_jitter_ms at least 0",
                                     table.path().string(), table.line(i)));
  }
  row.closed_loop = client;
  row.mean_ttft_ms = table.maybe_number(i, "silicon_ttft_ms");
  row.mean_tpot_ms = table.maybe_number(i, "silicon_tpot_ms");
  identify(row, table.text(i, "system"), "closed loop",
           fmt::format("{}/{} x{}", client.input_tokens, client.output_tokens, client.concurrency));
  return row;
}

std::vector<double> parse_rates(const CsvTable& table, std::size_t i) {
  std::vector<double> rates;
  std::string text = table.text(i, "rate_rps") + ";";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find(';', at);
    const std::string one = text.substr(at, end - at);
    char* stop = nullptr;
    rates.push_back(std::strtod(one.c_str(), &stop));
    if (one.empty() || *stop != '\0' || !(rates.back() > 0) || !std::isfinite(rates.back())) {
      throw CalibrateError(fmt::format("{}: line {}: column 'rate_rps' is '{}'; rates above 0 with ';' between",
                                       table.path().string(), table.line(i), table.text(i, "rate_rps")));
    }
    at = end + 1;
  }
  return rates;
}

// A row of one stage names that stage's rate only; the row of all stages of the
// same experiment, where there is one, has those that went before.
void add_other_stages(const CsvTable& table, std::size_t i, OpenLoopClient& client) {
  if (client.stage < 0 || client.rates_per_s.size() > 1) {
    return;
  }
  const auto stage = static_cast<std::size_t>(client.stage);
  for (std::size_t other = 0; other < table.num_rows(); ++other) {
    if (table.text(other, "exp_id") != table.text(i, "exp_id") || table.integer(other, "stage_index") != -1) {
      continue;
    }
    const std::vector<double> rates = parse_rates(table, other);
    if (stage < rates.size() && rates[stage] == client.rates_per_s.front()) {
      client.rates_per_s = rates;
      return;
    }
  }
  client.stage = 0;  // Alone.
}

ServingRow open_loop_row(const CsvTable& table, std::size_t i) {
  ServingRow row;
  row.setup = common_setup(table, i);
  row.setup.model = table.text(i, "model");
  row.setup.weights = lower(table.text(i, "prec")) == "fp8" ? "fp8" : "";
  row.setup.tensor_parallel_size = table.integer(i, "tp");
  row.setup.max_num_batched_tokens = table.maybe_integer(i, "mbt");
  row.setup.gpu_memory_utilization = table.maybe_number(i, "gmu");
  row.setup.vllm_version = table.text(i, "vllm");
  OpenLoopClient client;
  client.rates_per_s = parse_rates(table, i);
  client.stage_s = table.number(i, "stage_seconds");
  client.stage = static_cast<int>(table.integer(i, "stage_index"));
  client.shared_prefix_tokens = table.integer(i, "shared_prefix_tokens");
  client.prompt_tokens = table.integer(i, "prompt_tokens");
  client.output_tokens = table.integer(i, "output_tokens");
  client.distinct_prompts = table.integer(i, "distinct_prompts");
  add_other_stages(table, i, client);
  if (client.stage_s <= 0 || client.prompt_tokens < 1 || client.output_tokens < 1 || client.distinct_prompts < 1 ||
      client.shared_prefix_tokens < 0 || client.shared_prefix_tokens > client.prompt_tokens || client.stage < -1 ||
      client.stage >= static_cast<int>(client.rates_per_s.size())) {
    throw CalibrateError(fmt::format("{}: line {}: stage_seconds, lengths and distinct_prompts must be positive, "
                                     "shared_prefix_tokens within the prompt, stage_index one of rate_rps or -1",
                                     table.path().string(), table.line(i)));
  }
  row.open_loop = client;
  row.mean_ttft_ms = table.maybe_number(i, "ttft_mean");
  row.p99_ttft_ms = table.maybe_number(i, "ttft_p99");
  const auto e2e_ms = table.maybe_number(i, "e2e_mean");
  if (e2e_ms && row.mean_ttft_ms && client.output_tokens > 1) {
    row.mean_tpot_ms = (*e2e_ms - *row.mean_ttft_ms) / static_cast<double>(client.output_tokens - 1);
  }
  identify(row, table.text(i, "hardware"), "open loop",
           fmt::format("{} {}", table.text(i, "workload"),
                       client.stage < 0 ? std::string("all stages") : fmt::format("{:g}/s", client.rates_per_s.at(static_cast<std::size_t>(client.stage)))));
  return row;
}

ServingRow kv_blocks_row(const CsvTable& table, std::size_t i) {
  ServingRow row;
  row.setup = common_setup(table, i);
  row.setup.model = table.text(i, "model");
  row.setup.weights = table.text(i, "weights") == "bf16" ? "" : table.text(i, "weights");
  row.setup.tensor_parallel_size = table.integer(i, "tp");
  row.setup.vllm_version = table.text(i, "vllm");
  row.num_gpu_blocks = table.integer(i, "num_gpu_blocks");
  identify(row, table.text(i, "gpu"), "KV blocks", "KV blocks");
  return row;
}

struct TableKind {
  std::string_view telltale;  // A column that only this kind has.
  ServingRow (*read)(const CsvTable&, std::size_t);
};

constexpr std::array kTableKinds{
    TableKind{"concurrency", &closed_loop_row},
    TableKind{"rate_rps", &open_loop_row},
    TableKind{"num_gpu_blocks", &kv_blocks_row},
};

void read_file(const std::filesystem::path& path, std::vector<ServingRow>& rows) {
  const CsvTable table(path);
  const auto kind = std::find_if(kTableKinds.begin(), kTableKinds.end(),
                                 [&](const TableKind& k) { return table.has(k.telltale); });
  if (kind == kTableKinds.end()) {
    throw CalibrateError(fmt::format("{}: not a table of measured servers: none of the columns concurrency, rate_rps, "
                                     "num_gpu_blocks is there",
                                     path.string()));
  }
  for (std::size_t i = 0; i < table.num_rows(); ++i) {
    rows.push_back(kind->read(table, i));
    rows.back().file = path.filename();
    rows.back().line = table.line(i);
  }
}

bool is_recorded_run(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / "meta.json") && std::filesystem::exists(folder / "requests.jsonl");
}

void read_folder(const std::filesystem::path& folder, std::vector<ServingRow>& rows) {
  if (is_recorded_run(folder)) {
    rows.push_back(read_recorded_run(folder));
    return;
  }
  std::vector<std::filesystem::path> files;
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_directory()) {
      folders.push_back(entry.path());
    } else if (entry.path().extension() == ".csv") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::sort(folders.begin(), folders.end());
  if (files.empty() && folders.empty()) {
    rows.push_back(unreadable_folder(folder));
  }
  for (const std::filesystem::path& file : files) {
    read_file(file, rows);
  }
  for (const std::filesystem::path& inner : folders) {
    read_folder(inner, rows);
  }
}

}  // namespace

void identify(ServingRow& row, const std::string& written_gpu, const std::string& kind, const std::string& load) {
  ServingSetup& setup = row.setup;
  setup.gpu = known_gpu(written_gpu);
  std::string model = setup.model;
  try {
    model = hw::load_model(setup.model).name;
  } catch (const hw::SpecError& error) {
    row.not_run = error.what();
  }
  if (setup.gpu.empty()) {
    row.not_run = fmt::format("GPU '{}' is not known; known are {}", written_gpu, fmt::join(hw::gpu_names(), ", "));
  } else if (setup.attention_dp_size != 1) {
    row.not_run = fmt::format("attention_dp_size {}: data parallelism is not modelled", setup.attention_dp_size);
  }
  const std::string what = setup.weights.empty() ? model : fmt::format("{} {}", model, setup.weights);
  row.group = row.num_gpu_blocks ? kind : fmt::format("{}, {}", what, kind);
  row.name = fmt::format("{} {} tp{} {}", what, setup.gpu.empty() ? written_gpu : setup.gpu,
                         setup.tensor_parallel_size, load);
}

std::vector<ServingRow> read_serving_rows(const std::filesystem::path& file_or_folder) {
  std::vector<ServingRow> rows;
  if (std::filesystem::is_directory(file_or_folder)) {
    read_folder(file_or_folder, rows);
  } else {
    read_file(file_or_folder, rows);
  }
  return rows;
}

}  // namespace kneepoint::calibrate
