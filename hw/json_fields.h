// Fields of one JSON object from outside, each checked where it is read.
//
// A config.json is whatever somebody's download became. What is missing, of the
// wrong type or out of range ends in one line that names file and field; nothing
// unexpected is skipped in silence, and no text of the file reaches the message
// unprintable or at length.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace kneepoint::hw {

class JsonFields {
 public:
  using Json = nlohmann::json;

  /// Sizes above this are no model's.
  static constexpr std::int64_t kLargest = std::int64_t{1} << 24;

  /// `object` must be an object and outlive this. `prefix` is put before field
  /// names in messages: "text_config.".
  JsonFields(const Json& object, std::string file, std::string prefix = "")
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  /// Throws SpecError: "FILE: field 'PREFIXfield' what".
  [[noreturn]] void fail(const std::string& field, const std::string& what) const;

  /// Present and not null.
  [[nodiscard]] bool has(const char* field) const;

  [[nodiscard]] std::int64_t size(const char* field, std::int64_t least = 1,
                                  std::int64_t most = kLargest) const;
  [[nodiscard]] std::int64_t size_or(const char* field, std::int64_t otherwise, std::int64_t least = 0,
                                     std::int64_t most = kLargest) const;
  [[nodiscard]] double number(const char* field, double least, double most) const;
  [[nodiscard]] bool flag_or(const char* field, bool otherwise) const;
  [[nodiscard]] std::string text_or(const char* field, const std::string& otherwise) const;
  /// Null without the field.
  [[nodiscard]] const Json* list(const char* field) const;
  [[nodiscard]] const Json* object(const char* field) const;

  [[nodiscard]] const std::string& file() const { return file_; }

 private:
  const Json& object_;
  std::string file_;
  std::string prefix_;
};

/// At most 60 characters of `text`, control characters as '?': fit for a message.
[[nodiscard]] std::string printable(const std::string& text);

}  // namespace kneepoint::hw
