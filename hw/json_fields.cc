#include "hw/json_fields.h"

#include <fmt/format.h>

#include <cmath>

#include "hw/spec_error.h"

namespace kneepoint::hw {
namespace {

// A value for a message: its digits, or what kind of thing it is. (Not its text:
// nested garbage may be of any depth.)
std::string seen(const JsonFields::Json& value) {
  return value.is_number() ? value.dump() : fmt::format("of type {}", value.type_name());
}

}  // namespace

void JsonFields::fail(const std::string& field, const std::string& what) const {
  throw SpecError(fmt::format("{}: field '{}{}' {}", file_, prefix_, field, what));
}

bool JsonFields::has(const char* field) const {
  const auto found = object_.find(field);
  return found != object_.end() && !found->is_null();
}

std::int64_t JsonFields::size(const char* field, std::int64_t least, std::int64_t most) const {
  const std::string needed = fmt::format("a whole number from {} to {} is needed", least, most);
  if (!has(field)) {
    fail(field, "is missing; " + needed);
  }
  const Json& value = object_.at(field);
  const bool in_range =
      value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)) &&
      value.get<std::int64_t>() >= least && value.get<std::int64_t>() <= most;
  if (!in_range) {
    fail(field, fmt::format("is {}; {}", seen(value), needed));
  }
  return value.get<std::int64_t>();
}

std::int64_t JsonFields::size_or(const char* field, std::int64_t otherwise, std::int64_t least,
                                 std::int64_t most) const {
  return has(field) ? size(field, least, most) : otherwise;
}

double JsonFields::number(const char* field, double least, double most) const {
  const std::string needed = fmt::format("a number from {} to {} is needed", least, most);
  if (!has(field)) {
    fail(field, "is missing; " + needed);
  }
  const Json& value = object_.at(field);
  if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most)) {
    fail(field, fmt::format("is {}; {}", seen(value), needed));
  }
  return value.get<double>();
}

bool JsonFields::flag_or(const char* field, bool otherwise) const {
  if (!has(field)) {
    return otherwise;
  }
  if (!object_.at(field).is_boolean()) {
    fail(field, fmt::format("is {}; true or false is needed", seen(object_.at(field))));
  }
  return object_.at(field).get<bool>();
}

std::string JsonFields::text_or(const char* field, const std::string& otherwise) const {
  if (!has(field)) {
    return otherwise;
  }
  if (!object_.at(field).is_string()) {
    fail(field, fmt::format("is {}; a text is needed", seen(object_.at(field))));
  }
  return object_.at(field).get<std::string>();
}

const JsonFields::Json* JsonFields::list(const char* field) const {
  if (has(field) && !object_.at(field).is_array()) {
    fail(field, fmt::format("is {}; a list is needed", seen(object_.at(field))));
  }
  return has(field) ? &object_.at(field) : nullptr;
}

const JsonFields::Json* JsonFields::object(const char* field) const {
  if (has(field) && !object_.at(field).is_object()) {
    fail(field, fmt::format("is {}; an object is needed", seen(object_.at(field))));
  }
  return has(field) ? &object_.at(field) : nullptr;
}

std::string printable(const std::string& text) {
  std::string out = text.substr(0, 60);
  for (char& c : out) {
    c = static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return out;
}

}  // namespace kneepoint::hw
