// What is known by name: the bundled GPUs and models, and where else a name may
// lead (a file, a Hugging Face id).
#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "hw/closest_name.h"
#include "hw/embedded_text.h"
#include "hw/gpu_spec.h"
#include "hw/json_fields.h"
#include "hw/model_arch.h"
#include "hw/model_config.h"
#include "hw/spec_error.h"
#include "hw/specs.pb.h"

namespace kneepoint::hw {
namespace {

namespace fs = std::filesystem;
using bundled::EmbeddedText;

constexpr double kLargestFigure = 1e9;             // In the unit it is written in.
constexpr std::uintmax_t kLargestFile = 16 << 20;  // A config.json of a few KiB is usual.

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string read_file(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  std::ifstream in(path, std::ios::binary);
  if (error || !in) {
    throw SpecError(fmt::format("{}: cannot be read", path.string()));
  }
  if (size > kLargestFile) {
    throw SpecError(fmt::format("{}: {} bytes are no model or GPU description", path.string(), size));
  }
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> names_of(std::span<const EmbeddedText> texts) {
  std::vector<std::string> names;
  for (const EmbeddedText& text : texts) {
    names.emplace_back(text.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

[[noreturn]] void unknown(const char* what, const std::string& name,
                          const std::vector<std::string>& all_names, const std::vector<std::string>& listed,
                          const char* else_give) {
  const std::string closest = closest_name(name, all_names);
  throw SpecError(fmt::format("{} '{}' is not known{}; known are {}, or give {}", what, printable(name),
                              closest.empty() ? "" : fmt::format("; did you mean '{}'?", closest),
                              fmt::join(listed, ", "), else_give));
}

struct Unit {
  const char* name;
  double in_base_units;
};
constexpr std::array kUnits{
    Unit{"GB", 1e9},       Unit{"MB", 1e6},  Unit{"MiB", 1048576.0}, Unit{"GB/s", 1e9}, Unit{"TB/s", 1e12},
    Unit{"TFLOP/s", 1e12}, Unit{"MHz", 1e6}, Unit{"us", 1e-6},       Unit{"count", 1},
};

// The first complaint of the text format parser, as one line.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (text.empty()) {
      text = fmt::format("line {}, column {}: {}", line + 1, column + 1, message);
    }
  }
  std::string text;
};

// Figures of one GPU, scaled to base units once, here.
class Figures {
 public:
  Figures(const std::string& file) : file_(file) {}

  [[nodiscard]] double of(const char* field, bool given, const pb::Quantity& figure, const char* kind) const {
    if (!given) {
      throw SpecError(fmt::format("{}: field '{}' is missing", file_, field));
    }
    if (figure.source().empty()) {
      throw SpecError(
          fmt::format("{}: field '{}' has no source; say who measured or states it", file_, field));
    }
    const auto unit =
        std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return figure.unit() == u.name; });
    if (unit == kUnits.end() ||
        fmt::format(" {} ", kind).find(fmt::format(" {} ", figure.unit())) == std::string::npos) {
      throw SpecError(fmt::format("{}: field '{}' has the unit '{}'; one of {} is needed", file_, field,
                                  figure.unit(), kind));
    }
    const bool whole = figure.unit() != "count" || figure.value() == std::floor(figure.value());
    if (!(figure.value() > 0 && figure.value() <= kLargestFigure) || !whole) {
      throw SpecError(fmt::format("{}: field '{}' is {}; a {}number above 0, at most {}, is needed", file_,
                                  field, figure.value(), figure.unit() == "count" ? "whole " : "",
                                  kLargestFigure));
    }
    return figure.value() * unit->in_base_units;
  }

 private:
  std::string file_;
};

// Repositories of quantised copies are named after the original, with a suffix.
// Some publishers' FP8 copies bring scales for the activations.
struct QuantisedSuffix {
  const char* suffix;
  const char* weights_note;
};
constexpr std::array kQuantisedSuffixes{
    QuantisedSuffix{"-fp8-dynamic", "fp8"},
    QuantisedSuffix{"-fp8-kv", "fp8"},
    QuantisedSuffix{"-fp8", "fp8"},
    QuantisedSuffix{"-awq-int4", "awq"},
    QuantisedSuffix{"-awq", "awq"},
    QuantisedSuffix{"-gptq-int4", "gptq"},
    QuantisedSuffix{"-quantized.w4a16", "int4"},
};
constexpr std::array kStaticScalePublishers{"neuralmagic/", "nvidia/", "redhatai/"};

std::string after_slash(const std::string& id) {
  return id.substr(id.rfind('/') + 1);
}

// The text of `model` if it goes by `id` (lower case): its own name, or one of its
// aliases: {"id": ..., FACTS...} where facts differ. `by_last_part`: whoever the
// publisher.
std::optional<std::string> text_if_called(const EmbeddedText& model, const std::string& id,
                                          bool by_last_part) {
  if (id == lower(model.name)) {
    return std::string(model.text);
  }
  nlohmann::json facts = nlohmann::json::parse(model.text);
  for (const auto& alias : facts.at("aliases")) {
    const std::string name = lower((alias.is_object() ? alias.at("id") : alias).get<std::string>());
    if (name == id || (by_last_part && after_slash(name) == id)) {
      const nlohmann::json differing = alias.is_object() ? alias : nlohmann::json::object();
      facts.merge_patch(differing);
      return facts.dump();
    }
  }
  return std::nullopt;
}

std::optional<ModelArch> bundled_model(const std::string& id, bool by_last_part) {
  for (const EmbeddedText& model : bundled::models()) {
    if (const auto text = text_if_called(model, id, by_last_part)) {
      return parse_model_config(*text, fmt::format("bundled model {}", model.name), std::string(model.name));
    }
  }
  return std::nullopt;
}

std::optional<ModelArch> quantised_copy(const std::string& id) {
  for (const QuantisedSuffix& row : kQuantisedSuffixes) {
    if (!id.ends_with(row.suffix)) {
      continue;
    }
    const std::string original = after_slash(id.substr(0, id.size() - std::strlen(row.suffix)));
    std::optional<ModelArch> model = bundled_model(original, true);
    if (model) {
      model->weights_note = row.weights_note;
      model->static_activation_scales =
          std::string_view(row.suffix) == "-fp8" &&
          std::ranges::any_of(kStaticScalePublishers, [&](const char* who) { return id.starts_with(who); });
      model->source += fmt::format("; weights as the name {} says", id);
    }
    return model;
  }
  return std::nullopt;
}

std::vector<std::string> names_and_aliases() {
  std::vector<std::string> names = model_names();
  for (const EmbeddedText& model : bundled::models()) {
    const nlohmann::json facts = nlohmann::json::parse(model.text);
    for (const auto& alias : facts.at("aliases")) {
      names.push_back((alias.is_object() ? alias.at("id") : alias).get<std::string>());
    }
  }
  return names;
}

}  // namespace

const std::vector<std::string>& gpu_names() {
  static const std::vector<std::string> names = names_of(bundled::gpus());
  return names;
}

GpuSpec parse_gpu(std::string_view text, const std::string& file) {
  pb::GpuSpec proto;
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(std::string(text), &proto)) {
    throw SpecError(fmt::format("{}: {}", file, error.text));
  }
  if (proto.name().empty()) {
    throw SpecError(fmt::format("{}: field 'name' is missing", file));
  }
  const Figures figures(file);
  GpuSpec gpu;
  gpu.name = proto.name();
  gpu.full_name = proto.full_name().empty() ? proto.name() : proto.full_name();
  gpu.nominal_memory_bytes =
      figures.of("nominal_memory", proto.has_nominal_memory(), proto.nominal_memory(), "GB MB MiB");
  gpu.memory_bytes = std::llround(
      figures.of("reported_memory", proto.has_reported_memory(), proto.reported_memory(), "GB MB MiB"));
  gpu.bandwidth_bytes_per_s =
      figures.of("memory_bandwidth", proto.has_memory_bandwidth(), proto.memory_bandwidth(), "GB/s TB/s");
  gpu.l2_bytes = figures.of("l2_size", proto.has_l2_size(), proto.l2_size(), "MB MiB");
  gpu.l2_bandwidth_bytes_per_s =
      figures.of("l2_bandwidth", proto.has_l2_bandwidth(), proto.l2_bandwidth(), "GB/s TB/s");
  gpu.bf16_flops_per_s = figures.of("bf16_peak", proto.has_bf16_peak(), proto.bf16_peak(), "TFLOP/s");
  gpu.fp8_flops_per_s =
      proto.has_fp8_peak() ? figures.of("fp8_peak", true, proto.fp8_peak(), "TFLOP/s") : gpu.bf16_flops_per_s;
  gpu.num_sms = std::llround(figures.of("sm_count", proto.has_sm_count(), proto.sm_count(), "count"));
  gpu.clock_hz = figures.of("boost_clock", proto.has_boost_clock(), proto.boost_clock(), "MHz");
  gpu.link_bytes_per_s =
      figures.of("link_bandwidth", proto.has_link_bandwidth(), proto.link_bandwidth(), "GB/s TB/s");
  gpu.link_latency_s = figures.of("link_latency", proto.has_link_latency(), proto.link_latency(), "us");
  gpu.nvlink = proto.nvlink();
  gpu.data_centre_blackwell = proto.data_centre_blackwell();
  gpu.a100 = lower(gpu.name).rfind("a100", 0) == 0;
  gpu.source = proto.memory_bandwidth().source();
  gpu.rates_file = proto.rates();
  return gpu;
}

GpuSpec load_gpu(const std::string& name) {
  if (name.ends_with(".textproto")) {
    GpuSpec gpu = parse_gpu(read_file(name), name);
    if (!gpu.rates_file.empty()) gpu.rates_file = (fs::path(name).parent_path() / gpu.rates_file).string();
    return gpu;
  }
  for (const EmbeddedText& gpu : bundled::gpus()) {
    if (lower(name) == gpu.name) {
      return parse_gpu(gpu.text, fmt::format("bundled GPU {}", gpu.name));
    }
  }
  unknown("GPU", name, gpu_names(), gpu_names(), "a .textproto file");
}

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = names_of(bundled::models());
  return names;
}

ModelArch load_model(const std::string& name) {
  std::error_code ignored;
  fs::path path(name);
  if (fs::is_directory(path, ignored)) {
    path /= "config.json";
  }
  if (path.extension() == ".json") {
    return parse_model_config(read_file(path), path.string(), name);
  }
  const std::string id = lower(name);
  if (const auto model = bundled_model(id, false)) {
    return *model;
  }
  if (const auto model = quantised_copy(id)) {
    return *model;
  }
  unknown("model", name, names_and_aliases(), model_names(), "the path of a config.json");
}

}  // namespace kneepoint::hw
