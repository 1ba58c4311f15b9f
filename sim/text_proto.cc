#include "sim/text_proto.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "hw/closest_name.h"
#include "sim/usage_error.h"

namespace kneepoint::sim {
namespace {

// What stands between `before` and the next quotation mark; "" if it does not.
std::string quoted_after(const std::string& message, std::string_view before) {
  const std::size_t begin = message.find(before);
  if (begin == std::string::npos) {
    return "";
  }
  const std::string rest = message.substr(begin + before.size());
  return rest.substr(0, rest.find('"'));
}

// The first thing wrong with a file.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (text.empty()) {
      text = fmt::format("line {}, column {}: {}{}", line + 1, column + 1, message, suggestion(message));
    }
  }
  std::string text;

 private:
  // Protobuf says: Message type "kneepoint.sim.pb.RunConfig" has no field named "x".
  static std::string suggestion(const std::string& message) {
    const std::string field = quoted_after(message, "no field named \"");
    const auto* const type = google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(
        quoted_after(message, "Message type \""));
    if (field.empty() || type == nullptr) {
      return "";
    }
    std::vector<std::string> known;
    for (int i = 0; i < type->field_count(); ++i) {
      known.push_back(type->field(i)->name());
    }
    const std::string closest = hw::closest_name(field, known);
    return closest.empty() ? "" : fmt::format(" Did you mean {}?", closest);
  }
};

}  // namespace

void read_text_proto(const std::string& what, const std::string& file, google::protobuf::Message& message) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  std::error_code ignored;
  if (!in || std::filesystem::is_directory(file, ignored)) {
    throw UsageError(fmt::format("{}: cannot be read", what));
  }
  text << in.rdbuf();
  parse_text_proto(what, text.str(), message);
}

void parse_text_proto(const std::string& what, const std::string& text, google::protobuf::Message& message) {
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(text, &message)) {
    throw UsageError(fmt::format("{}: {}", what, error.text));
  }
}

}  // namespace kneepoint::sim
