#include "sim/study_points.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "hw/closest_name.h"
#include "hw/gpu_spec.h"
#include "hw/measured_step.h"
#include "hw/model_arch.h"
#include "hw/rates.h"
#include "sim/options.h"
#include "sim/text_proto.h"
#include "sim/usage_error.h"
#include "traces/sha256.h"
#include "traces/trace_file.h"

namespace kneepoint::sim {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostPoints = 10'000'000;

// They say where one run's output goes; a study has its own.
constexpr std::array kOfOneRun{"out", "format", "save_detailed", "requests_csv", "step_log"};
// May name a file.
constexpr std::array kFiles{"trace", "model", "gpu", "rates", "server"};

bool is_one_of(std::string_view name, const auto& names) {
  return std::ranges::find(names, name) != names.end();
}

std::vector<const FieldDescriptor*> fields_of(const pb::RunConfig& config) {
  std::vector<const FieldDescriptor*> fields;
  pb::RunConfig::GetReflection()->ListFields(config, &fields);
  return fields;
}

const FieldDescriptor* option_field(const std::string& where, std::string name) {
  std::ranges::replace(name, '-', '_');
  const auto* const type = pb::RunConfig::descriptor();
  if (const FieldDescriptor* field = type->FindFieldByName(name); field != nullptr) {
    return field;
  }
  std::vector<std::string> known;
  for (int i = 0; i < type->field_count(); ++i) {
    known.push_back(type->field(i)->name());
  }
  const std::string closest = hw::closest_name(name, known);
  throw UsageError(fmt::format("{}: no option '{}'{}; sim/run_config.proto has all of them", where, name,
                               closest.empty() ? "" : fmt::format(": did you mean '{}'?", closest)));
}

class Silent final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
};

// `value` as a run config would write it; a name needs no quotation marks.
pb::RunConfig entry_of(const std::string& where, const FieldDescriptor& field, const std::string& value) {
  pb::RunConfig entry;
  const auto* const reflection = pb::RunConfig::GetReflection();
  if (field.is_repeated()) {  // Words.
    std::size_t begin = 0;
    while ((begin = value.find_first_not_of(' ', begin)) != std::string::npos) {
      const std::size_t end = std::min(value.find(' ', begin), value.size());
      reflection->AddString(&entry, &field, value.substr(begin, end - begin));
      begin = end;
    }
    return entry;
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    reflection->SetString(&entry, &field, value);
    return entry;
  }
  TextFormat::Parser parser;
  Silent silent;
  parser.RecordErrorsTo(&silent);
  const bool one_line = value.find_first_of("\n#:;,{}") == std::string::npos;
  if (!one_line || !parser.ParseFromString(fmt::format("{}: {}", field.name(), value), &entry) ||
      fields_of(entry).size() != 1) {
    throw UsageError(fmt::format("{}: '{}' is no value of {}; a {} is needed", where, value, field.name(),
                                 field.cpp_type_name()));
  }
  return entry;
}

void lay_over(pb::RunConfig& config, const pb::RunConfig& entry) {
  if (entry.goodput_size() > 0) {
    config.clear_goodput();
  }
  config.MergeFrom(entry);
}

StudyDimension axis_dimension(const std::string& file, const char* kind, const pb::Axis& axis) {
  StudyDimension dimension;
  dimension.name = fmt::format("{} {}", kind, axis.option());
  const std::string where = fmt::format("{}: {}", file, dimension.name);
  const FieldDescriptor* const field = option_field(fmt::format("{}: {}", file, kind), axis.option());
  if (axis.value().empty()) {
    throw UsageError(fmt::format("{} has no value; give one or more, or leave it out", where));
  }
  for (const std::string& value : axis.value()) {
    dimension.entries.push_back(entry_of(where, *field, value));
  }
  return dimension;
}

StudyDimension zip_dimension(const std::string& file, const pb::Zip& zip) {
  StudyDimension dimension{"zip", {}};
  for (const pb::Axis& axis : zip.axis()) {
    StudyDimension next = axis_dimension(file, "zip", axis);
    if (!dimension.entries.empty() && dimension.entries.size() != next.entries.size()) {
      throw UsageError(
          fmt::format("{}: {} has {} values where the axis before has {}; options that go together "
                      "need as many",
                      file, next.name, next.entries.size(), dimension.entries.size()));
    }
    dimension.entries.resize(next.entries.size());
    for (std::size_t i = 0; i < next.entries.size(); ++i) {
      for (const FieldDescriptor* field : fields_of(next.entries[i])) {
        if (pb::RunConfig::GetReflection()->HasField(dimension.entries[i], field)) {
          throw UsageError(fmt::format("{}: zip has {} twice", file, field->name()));
        }
      }
      dimension.entries[i].MergeFrom(next.entries[i]);
    }
  }
  if (dimension.entries.empty()) {
    throw UsageError(fmt::format("{}: zip has no axis; give two or more, or leave it out", file));
  }
  return dimension;
}

StudyDimension seed_dimension(const std::string& file, const pb::Seeds& seeds) {
  if (seeds.count() < 1 || seeds.count() > kMostPoints) {
    throw UsageError(fmt::format("{}: seeds: count is {}; give 1 to {}", file, seeds.count(), kMostPoints));
  }
  StudyDimension dimension{"seeds", {}};
  for (std::int64_t i = 0; i < seeds.count(); ++i) {
    pb::RunConfig& entry = dimension.entries.emplace_back();
    entry.set_sim_seed(seeds.first() + static_cast<std::uint64_t>(i));
  }
  return dimension;
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
    add_dimension({"list", {study_.list().begin(), study_.list().end()}});
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
    const auto entries = static_cast<std::int64_t>(dimension.entries.size());
    if (size_ > kMostPoints / entries) {
      throw UsageError(fmt::format("{}: more than {} points; split the study", file_, kMostPoints));
    }
    size_ *= entries;
  }
}

pb::RunConfig StudyPoints::point(std::int64_t index) const {
  std::vector<std::size_t> picks(dimensions_.size());
  for (std::size_t i = dimensions_.size(); i-- > 0;) {
    const auto entries = static_cast<std::int64_t>(dimensions_[i].entries.size());
    picks[i] = static_cast<std::size_t>(index % entries);
    index /= entries;
  }
  pb::RunConfig config = study_.base();
  for (std::size_t i = 0; i < dimensions_.size(); ++i) {
    lay_over(config, dimensions_[i].entries[picks[i]]);
  }
  return config;
}

// Each entry with the first of every other dimension. What is wrong with the entry
// itself is wrong use; what only cannot go together is an answer of the study.
void StudyPoints::check_entries() const {
  std::int64_t stride = size_;
  for (const StudyDimension& dimension : dimensions_) {
    const auto entries = static_cast<std::int64_t>(dimension.entries.size());
    stride /= entries;
    const std::int64_t to_check = dimension.name == "seeds" ? 1 : entries;  // Any seed is right.
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
