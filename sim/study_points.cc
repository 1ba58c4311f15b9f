#include "sim/study_points.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "hw/gpu_spec.h"
#include "hw/measured_step.h"
#include "hw/model_arch.h"
#include "hw/rates.h"
#include "sim/options.h"
#include "sim/study_axes.h"
#include "sim/text_proto.h"
#include "sim/usage_error.h"
#include "traces/sha256.h"
#include "traces/trace_file.h"

namespace kneepoint::sim {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;
using Json = nlohmann::ordered_json;

// They say where one run's output goes; a study has its own.
constexpr std::array kOfOneRun{"out", "format", "save_detailed", "requests_csv", "step_log"};
// May name a file.
constexpr std::array kFiles{"trace", "model", "gpu", "rates", "server"};

bool is_one_of(std::string_view name, const auto& names) {
  return std::ranges::find(names, name) != names.end();
}

void lay_over(pb::RunConfig& config, const pb::RunConfig& entry) {
  if (entry.goodput_size() > 0) {
    config.clear_goodput();
  }
  config.MergeFrom(entry);
}

// Is it a file, or a bundled name?
bool is_file(const std::string& name) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(name, ignored);
}

std::string file_name(const std::string& path) {
  return is_file(path) ? std::filesystem::path(path).filename().string() : path;
}

void without_folders(pb::RunConfig& config) {
  for (const char* name : kFiles) {
    const FieldDescriptor* const field = pb::RunConfig::descriptor()->FindFieldByName(name);
    if (const auto* r = pb::RunConfig::GetReflection(); r->HasField(config, field)) {
      r->SetString(&config, field, file_name(r->GetString(config, field)));
    }
  }
}

Json value_json(const pb::RunConfig& config, const FieldDescriptor& field) {
  const auto* const r = pb::RunConfig::GetReflection();
  if (field.is_repeated()) {
    std::vector<std::string> words;
    for (int i = 0; i < r->FieldSize(config, &field); ++i) {
      words.push_back(r->GetRepeatedString(config, &field, i));
    }
    return words.empty() ? Json(nullptr) : Json(fmt::format("{}", fmt::join(words, " ")));
  }
  if (!r->HasField(config, &field)) {
    return nullptr;
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return r->GetBool(config, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return r->GetInt64(config, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return r->GetUInt64(config, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double value = r->GetDouble(config, &field);
      return value == value && value - value == 0 ? Json(value) : Json(fmt::format("{}", value));  // "inf".
    }
    default:
      return is_one_of(field.name(), kFiles) ? file_name(r->GetString(config, &field))
                                             : r->GetString(config, &field);
  }
}

// Throws for a name that is not known and a file that cannot be read: no point
// with it could run.
void load_named(const pb::RunConfig& config) {
  if (config.has_server()) {
    static_cast<void>(hw::load_server(config.server()));
  } else {
    static_cast<void>(hw::load_model(config.has_model() ? config.model() : "llama-3.1-8b"));
    static_cast<void>(hw::load_gpu(config.has_gpu() ? config.gpu() : "h100"));
    if (config.has_rates()) {
      static_cast<void>(hw::load_rates(config.rates()));
    }
  }
  if (!config.has_trace()) {
    throw UsageError("a point has no trace; give one in base, a grid or the list");
  }
  static_cast<void>(traces::TraceReader(config.trace()).info());
}

}  // namespace

StudyPoints::StudyPoints(const std::string& file) : file_(file) {
  read_text_proto(file, file, study_);
  make_dimensions();
  count_points();
  read_inputs();
  check_entries();
  make_identity();
}

void StudyPoints::make_dimensions() {
  if (!study_.list().empty()) {
    add_dimension({"list", {study_.list().begin(), study_.list().end()}, {}});
  }
  for (const pb::Axis& axis : study_.grid()) {
    add_dimension(axis_dimension(file_, "grid", axis));
  }
  for (const pb::Zip& zip : study_.zip()) {
    add_dimension(zip_dimension(file_, zip));
  }
  if (study_.has_seeds()) {
    add_dimension(seed_dimension(file_, study_.seeds()));
  }
  if (dimensions_.empty()) {
    throw UsageError(fmt::format(
        "{}: nothing varies: give a grid, a zip, a list or seeds (one run: simulate --run-config)", file_));
  }
  for (const FieldDescriptor* field : fields_of(study_.base())) {
    if (is_one_of(field->name(), kOfOneRun)) {
      throw UsageError(fmt::format("{}: base: {} belongs to a single run; a study writes its own results",
                                   file_, field->name()));
    }
  }
}

void StudyPoints::add_dimension(StudyDimension dimension) {
  std::vector<std::string> here;
  for (const pb::RunConfig& entry : dimension.entries) {
    for (const FieldDescriptor* field : fields_of(entry)) {
      if (is_one_of(field->name(), kOfOneRun)) {
        throw UsageError(fmt::format("{}: {}: {} belongs to a single run; a study writes its own results",
                                     file_, dimension.name, field->name()));
      }
      if (is_one_of(field->name(), options_)) {
        throw UsageError(
            fmt::format("{}: {}: {} varies elsewhere already; an option can vary in one place only", file_,
                        dimension.name, field->name()));
      }
      if (!is_one_of(field->name(), here)) {
        here.push_back(field->name());
      }
    }
  }
  if (dimension.is_seeds()) {
    if (is_one_of("sim_seed", options_)) {
      throw UsageError(fmt::format(
          "{}: seeds: sim_seed varies elsewhere already; an option can vary in one place only", file_));
    }
    here.emplace_back("sim_seed");
  }
  std::map<std::string, std::size_t> seen;
  for (std::size_t i = 0; i < dimension.entries.size(); ++i) {
    pb::RunConfig config = study_.base();
    lay_over(config, dimension.entries[i]);
    const auto [first, is_new] = seen.emplace(config.SerializeAsString(), i);
    if (!is_new) {
      throw UsageError(fmt::format("{}: {}: entries {} and {} are the same points; leave one out", file_,
                                   dimension.name, first->second + 1, i + 1));
    }
  }
  options_.insert(options_.end(), here.begin(), here.end());
  dimensions_.push_back(std::move(dimension));
}

void StudyPoints::count_points() {
  for (const StudyDimension& dimension : dimensions_) {
    const std::int64_t entries = dimension.size();
    if (size_ > kMostStudyPoints / entries) {
      throw UsageError(fmt::format("{}: more than {} points; split the study", file_, kMostStudyPoints));
    }
    size_ *= entries;
  }
}

pb::RunConfig StudyPoints::point(std::int64_t index) const {
  std::vector<std::int64_t> picks(dimensions_.size());
  for (std::size_t i = dimensions_.size(); i-- > 0;) {
    const std::int64_t entries = dimensions_[i].size();
    picks[i] = index % entries;
    index /= entries;
  }
  pb::RunConfig config = study_.base();
  for (std::size_t i = 0; i < dimensions_.size(); ++i) {
    const StudyDimension& dimension = dimensions_[i];
    if (dimension.is_seeds()) {
      config.set_sim_seed(dimension.seeds.first() + static_cast<std::uint64_t>(picks[i]));
    } else {
      lay_over(config, dimension.entries[static_cast<std::size_t>(picks[i])]);
    }
  }
  return config;
}

// Each entry with the first of every other dimension. What is wrong with the entry
// itself is wrong use; what only cannot go together is an answer of the study.
void StudyPoints::check_entries() const {
  std::int64_t stride = size_;
  for (const StudyDimension& dimension : dimensions_) {
    const std::int64_t entries = dimension.size();
    stride /= entries;
    const std::int64_t to_check = dimension.is_seeds() ? 1 : entries;  // Any seed is right.
    for (std::int64_t i = 0; i < to_check; ++i) {
      const pb::RunConfig config = point(i * stride);
      try {
        load_named(config);
      } catch (const std::exception& error) {
        throw UsageError(fmt::format("{}: {}", file_, error.what()));
      }
      try {
        static_cast<void>(resolve(config));
      } catch (const CannotRun&) {
      } catch (const UsageError& error) {
        throw UsageError(fmt::format("{}: {}, entry {}: {}", file_, dimension.name, i + 1, error.what()));
      } catch (const std::exception&) {  // Of the model on these GPUs, or the limits with each other.
      }
    }
  }
}

// Two files of one name would be told apart nowhere in the results.
void StudyPoints::read_inputs() {
  std::map<std::string, std::string> place_of;
  const auto add = [&](const pb::RunConfig& config) {
    for (const char* role : kFiles) {
      const FieldDescriptor* const field = pb::RunConfig::descriptor()->FindFieldByName(role);
      const std::string path = pb::RunConfig::GetReflection()->GetString(config, field);
      if (!is_file(path)) {
        continue;
      }
      const std::string name = file_name(path);
      const auto [first, is_new] = place_of.emplace(name, path);
      if (is_new) {
        inputs_.push_back({role, name, traces::sha256_file(path)});
      } else if (first->second != path) {
        throw UsageError(
            fmt::format("{}: {} and {} have the same name, by which results know them; rename one", file_,
                        first->second, path));
      }
    }
  };
  add(study_.base());
  for (const StudyDimension& dimension : dimensions_) {
    std::ranges::for_each(dimension.entries, add);
  }
}

std::string StudyPoints::text() const {
  pb::Study study = study_;
  if (study.has_base()) {
    without_folders(*study.mutable_base());
  }
  for (pb::RunConfig& entry : *study.mutable_list()) {
    without_folders(entry);
  }
  const auto axis_without_folders = [](pb::Axis& axis) {
    std::ranges::transform(*axis.mutable_value(), axis.mutable_value()->begin(), &file_name);
  };
  std::ranges::for_each(*study.mutable_grid(), axis_without_folders);
  for (pb::Zip& zip : *study.mutable_zip()) {
    std::ranges::for_each(*zip.mutable_axis(), axis_without_folders);
  }
  std::string text;
  TextFormat::PrintToString(study, &text);
  return text;
}

void StudyPoints::make_identity() {
  traces::Sha256 hash;
  hash.update(fmt::format("kneepoint study, version {}\n{}", kVersion, text()));
  for (const InputFile& input : inputs_) {
    hash.update(fmt::format("{} {}\n", input.sha256, input.name));
  }
  identity_ = hash.hex();
}

std::string StudyPoints::settings_json(const pb::RunConfig& point) const {
  Json json = Json::object();
  for (const std::string& option : options_) {
    json[option] = value_json(point, *pb::RunConfig::descriptor()->FindFieldByName(option));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kneepoint::sim
