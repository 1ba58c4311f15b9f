#include "sim/vllm_flags.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>

#include "hw/closest_name.h"
#include "sim/json_flag.h"
#include "sim/usage_error.h"

namespace kneepoint::sim {
namespace {

using google::protobuf::FieldDescriptor;

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// A word of the command line taken apart: "-sc.method=ngram".
struct Word {
  const Flag* flag = nullptr;
  bool negated = false;
  std::string written;                  // Before the '='.
  std::string key;                      // After the first '.', of a JSON flag.
  std::optional<std::string> attached;  // After the '='.
};

const Flag* find_flag(const std::string& name, bool& negated) {
  for (const Flag& flag : flags()) {
    if (!flag.alias.empty() && name == flag.alias) {
      return &flag;
    }
  }
  if (name.rfind("--", 0) != 0) {
    return nullptr;
  }
  const std::string dashed = with_dashes(name.substr(2));
  for (const Flag& flag : flags()) {
    negated = flag.value == FlagValue::kNone && dashed == fmt::format("no-{}", flag.name);
    if (negated || dashed == flag.name) {
      return &flag;
    }
  }
  return nullptr;
}

[[noreturn]] void unknown_flag(const std::string& word) {
  std::vector<std::string> known;
  for (const Flag& flag : flags()) {
    known.push_back(fmt::format("--{}", flag.name));
    if (flag.value == FlagValue::kNone) {
      known.push_back(fmt::format("--no-{}", flag.name));
    }
  }
  const std::string closest = hw::closest_name(with_dashes(word), known);
  throw UsageError(fmt::format("unknown flag {}{}; --help lists all", word,
                               closest.empty() ? "" : fmt::format(": did you mean {}?", closest)));
}

Word take_apart(const std::string& text) {
  Word word;
  word.written = text.substr(0, text.find('='));
  if (word.written.size() < text.size()) {
    word.attached = text.substr(word.written.size() + 1);
  }
  std::string name = word.written;
  if (name.size() == 3 && name.rfind("-O", 0) == 0) {  // -O2
    word.attached = name.substr(2);
    name.resize(2);
  } else if (const std::size_t dot = name.find('.'); dot != std::string::npos) {
    word.key = name.substr(dot + 1);
    name.resize(dot);
  }
  word.flag = find_flag(name, word.negated);
  if (word.flag == nullptr || (!word.key.empty() && word.flag->value != FlagValue::kJson)) {
    unknown_flag(word.written);
  }
  return word;
}

bool looks_like_flag(const std::string& word) {
  if (word.size() < 2 || word[0] != '-') {
    return false;
  }
  char* end = nullptr;
  (void)std::strtod(word.c_str(), &end);
  return *end != '\0';  // -1 is a value.
}

double parse_number(const std::string& flag, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || std::isspace(static_cast<unsigned char>(text.front())) != 0 || *end != '\0' ||
      std::isnan(value)) {
    throw UsageError(fmt::format("--{} is '{}'; a number is needed", flag, text));
  }
  return value;
}

bool parse_bool(const std::string& flag, const std::string& text) {
  if (text == "true" || text == "True" || text == "1") {
    return true;
  }
  if (text == "false" || text == "False" || text == "0") {
    return false;
  }
  throw UsageError(fmt::format("--{} is '{}'; true or false is needed", flag, text));
}

template <typename Integer>
Integer parse_whole(const std::string& flag, const std::string& text) {
  Integer value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end) {
    throw UsageError(fmt::format("--{} is '{}'; a whole number is needed{}", flag, text,
                                 std::is_unsigned_v<Integer> ? " of at least 0" : ""));
  }
  return value;
}

// Sets the field that has the flag's name. None leaves vLLM's default, except
// where None is a choice of its own.
void set_field(pb::RunConfig& config, const Flag& flag, const std::string& text) {
  std::string name(flag.name);
  std::replace(name.begin(), name.end(), '-', '_');
  const FieldDescriptor* field = pb::RunConfig::descriptor()->FindFieldByName(name);
  const auto* reflection = pb::RunConfig::GetReflection();
  const std::string spelled(flag.name);
  if (flag.group == FlagClass::kModelled && text == "None") {
    return flag.name == "prefix-cache-retention-interval" ? reflection->SetInt64(&config, field, -1)
                                                          : reflection->ClearField(&config, field);
  }
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->SetBool(&config, field, parse_bool(spelled, text));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->SetDouble(&config, field, parse_number(spelled, text));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->SetUInt64(&config, field, parse_whole<std::uint64_t>(spelled, text));
    case FieldDescriptor::CPPTYPE_INT64:
      if (flag.name == "max-model-len" && text == "auto") {
        return reflection->SetInt64(&config, field, -1);
      }
      return reflection->SetInt64(&config, field,
                                  flag.value == FlagValue::kSize ? parse_size(spelled, text)
                                                                 : parse_whole<std::int64_t>(spelled, text));
    default:
      break;
  }
  if (field->is_repeated()) {
    return reflection->AddString(&config, field, text);
  }
  reflection->SetString(&config, field, text);
}

// Messages are one line; only JSON may be wrapped.
const std::string& on_one_line(const std::string& word) {
  if (std::ranges::any_of(word, [](unsigned char c) { return std::iscntrl(c) != 0; })) {
    throw UsageError("an argument contains a line break or another control character; take it out");
  }
  return word;
}

// One command line, word by word.
class Reader {
 public:
  explicit Reader(std::span<const std::string> words) : words_(words) {}
  ParsedFlags read();

 private:
  [[nodiscard]] bool done() const { return next_ == words_.size(); }
  [[nodiscard]] bool next_is(std::size_t ahead, std::string_view text) const {
    return next_ + ahead < words_.size() && words_[next_ + ahead] == text;
  }
  [[nodiscard]] bool at_server_command() const { return next_is(0, "vllm") && next_is(1, "serve"); }
  [[nodiscard]] bool value_follows() const {
    return !done() && !looks_like_flag(words_[next_]) && !at_server_command();
  }
  void read_word();
  bool skip_server_command();
  bool take_environment(const std::string& word);
  void take_flag();
  std::vector<std::string> take_values(const Word& word);
  void apply(const Word& word, bool value, const std::vector<std::string>& values);
  void ignore(const std::string& written);

  std::span<const std::string> words_;
  std::size_t next_ = 0;
  bool model_given_ = false;
  std::map<std::string_view, JsonFlag> json_;  // By flag name.
  ParsedFlags parsed_;
};

ParsedFlags Reader::read() {
  while (!done()) {
    read_word();
  }
  for (const auto& [name, json] : json_) {
    const auto flag = std::ranges::find(flags(), name, &Flag::name);
    if (flag->group == FlagClass::kModelled) {
      set_field(parsed_.config, *flag, json.text());
    }
  }
  return parsed_;
}

void Reader::read_word() {
  const std::string& word = on_one_line(words_[next_]);
  if (word == "--" || word == "\\") {  // Of a line that was wrapped.
    ++next_;
  } else if (skip_server_command()) {
    return;
  } else if (looks_like_flag(word)) {
    take_flag();
  } else if (!model_given_ && take_environment(word)) {
    ++next_;
  } else if (!model_given_) {
    parsed_.config.set_model(word);
    model_given_ = true;
    ++next_;
  } else {
    throw UsageError(fmt::format("'{}' is one argument too many; the model is given already", word));
  }
}

bool Reader::skip_server_command() {
  if (at_server_command()) {
    next_ += 2;
    return true;
  }
  if ((next_is(0, "python") || next_is(0, "python3")) && next_is(1, "-m") &&
      next_is(2, "vllm.entrypoints.openai.api_server")) {
    next_ += 3;
    return true;
  }
  return false;
}

// NAME=value in front of the server's command.
bool Reader::take_environment(const std::string& word) {
  const std::size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const bool assignment =
      equals != std::string::npos && !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
        return std::isupper(c) != 0 || std::isdigit(c) != 0 || c == '_';
      });
  if (!assignment) {
    return false;
  }
  const auto known = std::ranges::find(environment_variables(), name, &EnvironmentVariable::name);
  if (known == environment_variables().end()) {
    throw UsageError(fmt::format(
        "environment variable {}: its influence is not known here; leave it out to simulate without", name));
  }
  if (known->flag.empty()) {
    ignore(name);
  } else {
    const auto flag = std::ranges::find(flags(), known->flag, &Flag::name);
    set_field(parsed_.config, *flag, parse_bool(name, word.substr(equals + 1)) ? "true" : "false");
  }
  return true;
}

void Reader::ignore(const std::string& written) {
  if (std::ranges::find(parsed_.without_influence, written) == parsed_.without_influence.end()) {
    parsed_.without_influence.push_back(written);
  }
}

std::vector<std::string> Reader::take_values(const Word& word) {
  if (word.attached) {
    return {*word.attached};
  }
  const FlagValue kind = word.flag->value;
  std::vector<std::string> values;
  if (kind == FlagValue::kNone) {
    return values;
  }
  const bool many = kind == FlagValue::kMany;
  while (value_follows() && (values.empty() || many)) {
    values.push_back(kind == FlagValue::kJson ? words_[next_] : on_one_line(words_[next_]));
    ++next_;
  }
  if (values.empty() && kind != FlagValue::kOptional) {
    throw UsageError(fmt::format("{} needs {} value", word.written, many ? "at least one" : "a"));
  }
  return values;
}

void refuse_unless_neutral(const Word& word, bool value, const std::vector<std::string>& values) {
  const Flag& flag = *word.flag;
  std::string given = values.empty() ? (value ? "true" : "false") : values.front();
  std::string neutral =
      flag.value == FlagValue::kNone && flag.neutral.empty() ? "false" : std::string(flag.neutral);
  if (fmt::format("|{}|", neutral).find(fmt::format("|{}|", given)) != std::string::npos && !given.empty()) {
    return;
  }
  throw UsageError(fmt::format(
      "{}{}{}: {} would change the result and is not modelled yet; leave it out to simulate without",
      word.written, values.empty() ? "" : " ", fmt::join(values, " "), flag.help));
}

void Reader::take_flag() {
  const Word word = take_apart(words_[next_++]);
  const Flag& flag = *word.flag;
  const std::vector<std::string> values = take_values(word);
  bool value = !word.negated;
  if (flag.value == FlagValue::kNone && word.attached) {
    value = parse_bool(std::string(flag.name), *word.attached) != word.negated;
  }
  if (flag.group == FlagClass::kNoInfluence) {
    return ignore(word.written);
  }
  if (flag.value == FlagValue::kJson) {
    JsonFlag& json = json_.try_emplace(flag.name, fmt::format("--{}", flag.name)).first->second;
    json.add(word.key, values.front());
    if (flag.group == FlagClass::kNotModelled &&
        !(flag.name == "compilation-config" && json.is_default_compilation())) {
      refuse_unless_neutral(word, value, values);
    }
    return;
  }
  if (flag.group == FlagClass::kNotModelled) {
    return refuse_unless_neutral(word, value,
                                 flag.value == FlagValue::kNone ? std::vector<std::string>() : values);
  }
  apply(word, value, values);
}

void Reader::apply(const Word& word, bool value, const std::vector<std::string>& values) {
  const Flag& flag = *word.flag;
  if (flag.name == "help") {
    parsed_.help = value;
  } else if (flag.name == "version") {
    parsed_.version = value;
  } else if (flag.name == "list-schedulers") {
    parsed_.list_schedulers = value;
  } else if (flag.name == "print-config") {
    parsed_.print_config = value;
  } else if (flag.name == "run-config") {
    parsed_.run_config_file = values.front();
  } else if (flag.value == FlagValue::kNone) {
    set_field(parsed_.config, flag, value ? "true" : "false");
  } else {
    for (const std::string& text : values) {
      set_field(parsed_.config, flag, text);
    }
  }
}

}  // namespace

std::int64_t parse_size(const std::string& flag, const std::string& text) {
  static constexpr std::string_view kDecimal = "kmgt";
  static constexpr std::string_view kBinary = "KMGT";
  const auto refuse = [&] {
    throw UsageError(
        fmt::format("--{} is '{}'; a whole number is needed, 8k for 8,000, 8K for 8,192", flag, text));
  };
  const std::size_t decimal = text.empty() ? std::string::npos : kDecimal.find(text.back());
  const std::size_t binary = text.empty() ? std::string::npos : kBinary.find(text.back());
  if (decimal == std::string_view::npos && binary == std::string_view::npos) {
    std::int64_t whole = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
    if (text.empty() || error != std::errc() || stop != text.data() + text.size()) {
      refuse();
    }
    return whole;
  }
  double number = 0;
  const char* const end = text.data() + text.size() - 1;
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const bool is_decimal = decimal != std::string_view::npos;
  const double value = std::round(number * (is_decimal ? std::pow(1000.0, static_cast<double>(decimal + 1))
                                                       : std::pow(1024.0, static_cast<double>(binary + 1))));
  if (error != std::errc() || stop != end || !(std::abs(value) < 9.0e15) ||
      (!is_decimal && number != std::floor(number))) {
    refuse();
  }
  return static_cast<std::int64_t>(value);
}

ParsedFlags parse_flags(std::span<const std::string> arguments) {
  return Reader(arguments).read();
}

}  // namespace kneepoint::sim
