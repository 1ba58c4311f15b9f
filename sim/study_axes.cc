#include "sim/study_axes.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>

#include "hw/closest_name.h"
#include "sim/usage_error.h"

namespace kneepoint::sim {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;

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

}  // namespace

std::vector<const FieldDescriptor*> fields_of(const pb::RunConfig& config) {
  std::vector<const FieldDescriptor*> fields;
  pb::RunConfig::GetReflection()->ListFields(config, &fields);
  return fields;
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
  StudyDimension dimension{"zip", {}, {}};
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
  if (seeds.count() < 1 || seeds.count() > kMostStudyPoints) {
    throw UsageError(
        fmt::format("{}: seeds: count is {}; give 1 to {}", file, seeds.count(), kMostStudyPoints));
  }
  return {"seeds", {}, seeds};
}

}  // namespace kneepoint::sim
