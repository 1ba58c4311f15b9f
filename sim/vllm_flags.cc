#include "sim/vllm_flags.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "hw/closest_name.h"
#include "sim/usage_error.h"

namespace kneepoint::sim {
namespace {

using google::protobuf::FieldDescriptor;

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// What a word of the command line names: a flag, and whether in its --no- form.
struct Named {
  const Flag* flag = nullptr;
  bool negated = false;
};

Named find_flag(const std::string& word) {
  for (const Flag& flag : flags()) {
    if (!flag.alias.empty() && word == flag.alias) {
      return {&flag, false};
    }
  }
  if (word.rfind("--", 0) != 0) {
    return {};
  }
  const std::string name = with_dashes(word.substr(2));
  for (const Flag& flag : flags()) {
    if (name == flag.name) {
      return {&flag, false};
    }
    if (flag.value == FlagValue::kNone && name == "no-" + std::string(flag.name)) {
      return {&flag, true};
    }
  }
  return {};
}

[[noreturn]] void unknown_flag(const std::string& word) {
  std::vector<std::string> known;
  for (const Flag& flag : flags()) {
    known.push_back("--" + std::string(flag.name));
    if (flag.value == FlagValue::kNone) {
      known.push_back("--no-" + std::string(flag.name));
    }
  }
  const std::string closest = hw::closest_name(with_dashes(word), known);
  throw UsageError(fmt::format("unknown flag {}{}; --help lists all", word,
                               closest.empty() ? "" : fmt::format(": did you mean {}?", closest)));
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
  if (text.empty() || *end != '\0' || std::isnan(value)) {
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

// Sets the field that has the flag's name.
void set_field(pb::RunConfig& config, const std::string& flag, const std::string& text) {
  std::string name = flag;
  std::replace(name.begin(), name.end(), '-', '_');
  const FieldDescriptor* field = pb::RunConfig::descriptor()->FindFieldByName(name);
  const auto* reflection = pb::RunConfig::GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL: return reflection->SetBool(&config, field, parse_bool(flag, text));
    case FieldDescriptor::CPPTYPE_DOUBLE: return reflection->SetDouble(&config, field, parse_number(flag, text));
    case FieldDescriptor::CPPTYPE_INT64: return reflection->SetInt64(&config, field, parse_size(flag, text));
    case FieldDescriptor::CPPTYPE_UINT64: {
      const std::int64_t value = parse_size(flag, text);
      if (value < 0) {
        throw UsageError(fmt::format("--{} is {}; a value of at least 0 is needed", flag, value));
      }
      return reflection->SetUInt64(&config, field, static_cast<std::uint64_t>(value));
    }
    default: break;
  }
  if (field->is_repeated()) {
    return reflection->AddString(&config, field, text);
  }
  reflection->SetString(&config, field, text);
}

// Words of one command line, taken from the front.
class Words {
 public:
  explicit Words(std::span<const std::string> words) : words_(words) {}
  [[nodiscard]] bool empty() const { return next_ == words_.size(); }
  [[nodiscard]] const std::string& peek() const { return words_[next_]; }
  std::string take() { return words_[next_++]; }
  [[nodiscard]] bool value_follows() const { return !empty() && !looks_like_flag(peek()); }

 private:
  std::span<const std::string> words_;
  std::size_t next_ = 0;
};

std::vector<std::string> take_values(const Named& named, const std::string& word, Words& words,
                                     const std::optional<std::string>& attached) {
  if (attached) {
    return {*attached};
  }
  std::vector<std::string> values;
  switch (named.flag->value) {
    case FlagValue::kNone: break;
    case FlagValue::kOptional:
      if (words.value_follows()) {
        values.push_back(words.take());
      }
      break;
    case FlagValue::kOne:
      if (!words.value_follows()) {
        throw UsageError(fmt::format("{} needs a value", word));
      }
      values.push_back(words.take());
      break;
    case FlagValue::kMany:
      while (words.value_follows()) {
        values.push_back(words.take());
      }
      if (values.empty()) {
        throw UsageError(fmt::format("{} needs at least one value", word));
      }
      break;
  }
  return values;
}

void refuse_unless_neutral(const Flag& flag, const std::string& word, bool negated,
                           const std::vector<std::string>& values) {
  const bool neutral = negated || (!values.empty() && !flag.neutral.empty() && values.front() == flag.neutral);
  if (!neutral) {
    throw UsageError(fmt::format("{}: {} would change the result and is not modelled yet; leave it out to simulate "
                                 "without",
                                 word, flag.help));
  }
}

void apply_ours(const Flag& flag, bool value, const std::vector<std::string>& values, ParsedFlags& parsed) {
  if (flag.name == "help") {
    parsed.help = true;
  } else if (flag.name == "version") {
    parsed.version = true;
  } else if (flag.name == "list-schedulers") {
    parsed.list_schedulers = true;
  } else if (flag.name == "print-config") {
    parsed.print_config = true;
  } else if (flag.name == "run-config") {
    parsed.run_config_file = values.front();
  } else if (flag.value == FlagValue::kNone) {
    set_field(parsed.config, std::string(flag.name), value ? "true" : "false");
  } else {
    for (const std::string& text : values) {
      set_field(parsed.config, std::string(flag.name), text);
    }
  }
}

void take_flag(Words& words, ParsedFlags& parsed) {
  const std::string written = words.take();
  std::string word = written;
  std::optional<std::string> attached;
  if (const std::size_t equals = word.find('='); equals != std::string::npos) {
    attached = word.substr(equals + 1);
    word.resize(equals);
  } else if (word.size() == 3 && word.rfind("-O", 0) == 0) {  // -O2
    attached = word.substr(2);
    word.resize(2);
  }
  const Named named = find_flag(word);
  if (named.flag == nullptr) {
    unknown_flag(word);
  }
  const Flag& flag = *named.flag;
  bool value = !named.negated;
  std::vector<std::string> values = take_values(named, word, words, attached);
  if (flag.value == FlagValue::kNone && attached) {
    value = parse_bool(std::string(flag.name), *attached) != named.negated;
  }
  switch (flag.group) {
    case FlagClass::kNoInfluence:
      if (std::ranges::find(parsed.without_influence, word) == parsed.without_influence.end()) {
        parsed.without_influence.push_back(word);
      }
      return;
    case FlagClass::kNotModelled: return refuse_unless_neutral(flag, word, named.negated || !value, values);
    case FlagClass::kModelled:
    case FlagClass::kOurs: return apply_ours(flag, value, values, parsed);
  }
}

void append_group(std::string& text, std::string_view title, FlagClass group) {
  text += fmt::format("\n{}\n", title);
  for (const Flag& flag : flags()) {
    if (flag.group != group) {
      continue;
    }
    const std::string name = fmt::format("--{}{}{}", flag.name, flag.alias.empty() ? "" : ", ", flag.alias);
    text += fmt::format("  {:<40} {}\n", name, flag.help);
  }
}

}  // namespace

std::int64_t parse_size(const std::string& flag, const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string_view suffix(end);
  static constexpr std::string_view kDecimal = "kmgt";
  static constexpr std::string_view kBinary = "KMGT";
  double factor = 1;
  bool ok = !text.empty() && end != text.c_str() && suffix.size() <= 1 && std::isfinite(number) &&
            text.find_first_of("xXpP") == std::string::npos;
  if (ok && suffix.size() == 1) {
    if (const auto decimal = kDecimal.find(suffix[0]); decimal != std::string_view::npos) {
      factor = std::pow(1000.0, static_cast<double>(decimal + 1));
    } else if (const auto binary = kBinary.find(suffix[0]); binary != std::string_view::npos) {
      factor = std::pow(1024.0, static_cast<double>(binary + 1));
      ok = number == std::floor(number);
    } else {
      ok = false;
    }
  }
  const double value = std::round(number * factor);
  ok = ok && (suffix.size() == 1 || number == std::floor(number)) && std::abs(value) < 9.0e15;
  if (!ok) {
    throw UsageError(fmt::format("--{} is '{}'; a whole number is needed, 8k for 8,000, 8K for 8,192", flag, text));
  }
  return static_cast<std::int64_t>(value);
}

ParsedFlags parse_flags(std::span<const std::string> arguments) {
  ParsedFlags parsed;
  Words words(arguments);
  bool model_given = false;
  while (!words.empty()) {
    if (words.peek() == "--" || words.peek() == "\\") {
      words.take();
    } else if (looks_like_flag(words.peek())) {
      take_flag(words, parsed);
    } else {
      const std::string word = words.take();
      if (word == "vllm" && !words.empty() && words.peek() == "serve") {
        words.take();
      } else if (word == "serve" && !model_given) {
        continue;
      } else if (!model_given) {
        parsed.config.set_model(word);
        model_given = true;
      } else {
        throw UsageError(fmt::format("'{}' is one argument too many; the model is given already", word));
      }
    }
  }
  return parsed;
}

std::string help_text() {
  std::string text =
      "simulate --trace FILE.pb [MODEL] [flags]: replay a workload through a simulated vLLM server\n"
      "simulate capacity [...]: what limits concurrency, as tables\n"
      "simulate explain [...]: what one step costs, operator by operator\n\n"
      "  example   simulate --trace bursty.pb --gpu h100 llama-3.1-8b --max-num-seqs 256 --out result\n"
      "  or paste  simulate --trace bursty.pb vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 2 --port 8000\n";
  append_group(text, "simulation", FlagClass::kOurs);
  append_group(text, "server, by vLLM's names and defaults", FlagClass::kModelled);
  text += "\naccepted without influence on decisions or times\n ";
  std::size_t column = 1;
  for (const Flag& flag : flags()) {
    if (flag.group == FlagClass::kNoInfluence) {
      if (column + flag.name.size() + 3 > 100) {
        text += "\n ";
        column = 1;
      }
      text += fmt::format(" --{}", flag.name);
      column += flag.name.size() + 3;
    }
  }
  text += "\n";
  append_group(text, "not modelled yet: an error, except with a neutral value", FlagClass::kNotModelled);
  return text;
}

}  // namespace kneepoint::sim
