// A JSON-valued flag, given whole or key by key as vLLM takes it:
//
//     -sc '{"method": "ngram"}'      -sc.method ngram      -cc.sizes+ 1 -cc.sizes+ 2
//
// Dots go down into objects, '+' appends to a list; a value that is no JSON is a
// string.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kneepoint::sim {

/// The value of `text`, or a discarded one if it is no JSON or nested deeper than any flag of vLLM's: copying,
/// merging and printing go as deep as the value does.
[[nodiscard]] nlohmann::json parse_flat_json(const std::string& text);

class JsonFlag {
 public:
  /// `name` as messages call it: "--speculative-config".
  explicit JsonFlag(std::string name) : name_(std::move(name)) {}

  /// Adds `value` under `key`; an empty key: the whole. Throws UsageError if the
  /// whole is not an object, or key and value contradict what came before.
  void add(const std::string& key, const std::string& value);

  /// A command line need not be UTF-8; JSON must be.
  [[nodiscard]] std::string text() const {
    return json_.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  /// As a --compilation-config: asks for what level 2 does anyway.
  [[nodiscard]] bool is_default_compilation() const;

 private:
  std::string name_;
  nlohmann::json json_ = nlohmann::json::object();
};

}  // namespace kneepoint::sim
