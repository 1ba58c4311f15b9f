// The dialect of `vllm serve`, and the table that classes its flags. The table is
// walked: no flag may be taken and then forgotten.
#include "sim/vllm_flags.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "sim/usage_error.h"

namespace kneepoint::sim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

std::string fields_of(const pb::RunConfig& config) {
  std::string text;
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.PrintToString(config, &text);
  return text.empty() ? text : text.substr(0, text.size() - 1);
}

std::string complaint(const Words& words) {
  try {
    (void)parse_flags(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was wrong";
}

struct Line {
  const char* why;
  Words words;
  const char* fields;
};

TEST(VllmFlags, AreReadInVllmsDialect) {
  for (const Line& line : {
           Line{"nothing", {}, ""},
           Line{"positional model", {"llama-3.1-8b"}, R"(model: "llama-3.1-8b")"},
           Line{"a pasted line",
                {"--trace", "t.pb", "--", "vllm", "serve", "meta-llama/Llama-3.1-8B-Instruct", "-tp", "2"},
                R"(trace: "t.pb" model: "meta-llama/Llama-3.1-8B-Instruct" tensor_parallel_size: 2)"},
           Line{"a wrapped line",
                {"vllm", "serve", "m", "\\", "-pp", "2"},
                R"(model: "m" pipeline_parallel_size: 2)"},
           Line{"the module instead of the command",
                {"python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"},
                R"(model: "m")"},
           Line{"values after =", {"--max-num-seqs=7"}, "max_num_seqs: 7"},
           Line{"underscores", {"--max_num_seqs", "7"}, "max_num_seqs: 7"},
           Line{"sizes",
                {"--max-model-len", "8k", "--max-num-batched-tokens", "8K"},
                "max_model_len: 8000 max_num_batched_tokens: 8192"},
           Line{"auto and -1 are one", {"--max-model-len", "auto"}, "max_model_len: -1"},
           Line{"negative values", {"--max-model-len", "-1"}, "max_model_len: -1"},
           Line{"None leaves the default", {"--max-num-active-seqs", "None"}, ""},
           Line{"None where it is a choice",
                {"--prefix-cache-retention-interval", "None"},
                "prefix_cache_retention_interval: -1"},
           Line{"switches",
                {"--enforce-eager", "--no-enable-prefix-caching"},
                "enable_prefix_caching: false enforce_eager: true"},
           Line{"switches with a value", {"--enable-prefix-caching=false"}, "enable_prefix_caching: false"},
           Line{"twice negated", {"--no-enable-prefix-caching=false"}, "enable_prefix_caching: true"},
           Line{"the last one counts", {"--max-num-seqs", "1", "--max-num-seqs", "2"}, "max_num_seqs: 2"},
           Line{"levels", {"-O3"}, "optimization_level: 3"},
           Line{"levels apart", {"-O", "0"}, "optimization_level: 0"},
           Line{"lists end at the next flag",
                {"--goodput", "ttft:5", "tpot:6", "--strict"},
                R"(strict: true goodput: "ttft:5" goodput: "tpot:6")"},
           Line{"lists end at a pasted line",
                {"--goodput", "ttft:5", "vllm", "serve", "m"},
                R"(model: "m" goodput: "ttft:5")"},
           Line{"JSON whole",
                {"-sc", R"({"num_speculative_tokens": 4, "method": "ngram"})"},
                R"(speculative_config: "{\"method\":\"ngram\",\"num_speculative_tokens\":4}")"},
           Line{"JSON by key",
                {"-sc.method", "ngram", "--speculative-config.num_speculative_tokens=4"},
                R"(speculative_config: "{\"method\":\"ngram\",\"num_speculative_tokens\":4}")"},
           Line{"JSON lists by element",
                {"-sc.synthetic_acceptance_rates+", "0.8", "-sc.synthetic_acceptance_rates+", "0.5"},
                R"(speculative_config: "{\"synthetic_acceptance_rates\":[0.8,0.5]}")"},
           Line{"JSON over several lines",
                {"-sc", "{\n\"method\": \"ngram\"}"},
                R"(speculative_config: "{\"method\":\"ngram\"}")"},
           Line{"environment",
                {"VLLM_USE_V2_MODEL_RUNNER=0", "HF_TOKEN=x", "vllm", "serve", "m"},
                R"(model: "m" use_v2_model_runner: false)"},
           Line{"seeds of 64 bits", {"--sim-seed", "18446744073709551615"}, "sim_seed: 18446744073709551615"},
       }) {
    EXPECT_EQ(fields_of(parse_flags(line.words).config), line.fields) << line.why;
  }
}

struct Size {
  const char* text;
  std::int64_t value;
};

TEST(VllmFlags, SizesAreReadAsVllmReadsThem) {
  for (const Size& size : {Size{"8192", 8192}, Size{"8k", 8000}, Size{"8K", 8192}, Size{"25.6k", 25600},
                           Size{"2m", 2'000'000}, Size{"1M", 1'048'576}, Size{"1G", 1'073'741'824},
                           Size{"3g", 3'000'000'000}, Size{"1T", 1'099'511'627'776}, Size{"-1", -1}}) {
    EXPECT_EQ(parse_size("x", size.text), size.value) << size.text;
  }
  for (const char* wrong : {"", "k", "8q", "8kk", "1.5K", "1.5", "nan", "inf", "infk", "0x10", "1e3k", "9e99",
                            " 8", "8 k", "99999999999999999999", "9999999t"}) {
    EXPECT_THROW((void)parse_size("x", wrong), UsageError) << wrong;
  }
}

TEST(VllmFlags, NamesAndShortFormsAreUnique) {
  std::set<std::string_view> names;
  for (const Flag& flag : flags()) {
    EXPECT_TRUE(names.insert(flag.name).second) << flag.name;
    EXPECT_TRUE(flag.alias.empty() || names.insert(flag.alias).second) << flag.alias;
  }
}

// Flags that command rather than configure.
const std::set<std::string_view> kCommands = {"run-config", "print-config", "list-schedulers", "help",
                                              "version"};

TEST(VllmFlags, EachModelledFlagIsAFieldAndEachFieldAFlag) {
  std::set<std::string> fields;
  for (int i = 0; i < pb::RunConfig::descriptor()->field_count(); ++i) {
    fields.insert(pb::RunConfig::descriptor()->field(i)->name());
  }
  for (const Flag& flag : flags()) {
    const bool sets = flag.group == FlagClass::kModelled || flag.group == FlagClass::kOurs;
    std::string name(flag.name);
    std::replace(name.begin(), name.end(), '-', '_');
    EXPECT_EQ(fields.erase(name), sets && !kCommands.contains(flag.name) ? 1U : 0U) << flag.name;
  }
  EXPECT_THAT(fields, testing::IsEmpty());
}

// The flag as words, with a value of the kind it takes.
Words with_value(const Flag& flag, const std::string& value) {
  const std::string name = fmt::format("--{}", flag.name);
  switch (flag.value) {
    case FlagValue::kNone:
      return {name + "=" + value};
    case FlagValue::kJson:
      return {name, value};
    default:
      return {name, value};
  }
}

TEST(VllmFlags, WithoutInfluenceAreNamedOnceAndChangeNothing) {
  std::size_t count = 0;
  for (const Flag& flag : flags()) {
    if (flag.group != FlagClass::kNoInfluence) {
      continue;
    }
    ++count;
    const std::string name = fmt::format("--{}", flag.name);
    const Words twice =
        flag.value == FlagValue::kNone ? Words{"m", name, name} : Words{"m", name, "8", name, "8"};
    const ParsedFlags parsed = parse_flags(twice);
    EXPECT_THAT(parsed.without_influence, ElementsAre(name));
    EXPECT_EQ(fields_of(parsed.config), R"(model: "m")") << name;
  }
  EXPECT_GT(count, 100U);
  EXPECT_THAT(
      parse_flags(Words{"CUDA_VISIBLE_DEVICES=0", "vllm", "serve", "m", "--api-key", "a", "b", "--port=80"})
          .without_influence,
      ElementsAre("CUDA_VISIBLE_DEVICES", "--api-key", "--port"));
}

TEST(VllmFlags, NotModelledIsAnErrorUnlessItAsksForNothing) {
  for (const Flag& flag : flags()) {
    if (flag.group != FlagClass::kNotModelled) {
      continue;
    }
    SCOPED_TRACE(flag.name);
    const bool is_switch = flag.value == FlagValue::kNone;
    const bool on_is_neutral = flag.neutral == "true";
    const std::string said =
        complaint(with_value(flag, is_switch ? (on_is_neutral ? "false" : "true") : "{\"a\": 1}"));
    EXPECT_THAT(said, HasSubstr("not modelled yet"));
    EXPECT_THAT(said, HasSubstr(std::string(flag.help)));
    std::string neutral = is_switch ? (on_is_neutral ? "true" : "false") : std::string(flag.neutral);
    neutral.resize(std::min(neutral.size(), neutral.find('|')));
    if (!neutral.empty()) {
      EXPECT_EQ(complaint(with_value(flag, neutral)), "nothing was wrong");
    }
  }
}

TEST(VllmFlags, CompilationOfLevelTwoIsWhatIsModelled) {
  for (const Words& words :
       {Words{"-cc", "3"}, Words{"-cc.mode=3"}, Words{"-cc.mode", "VLLM_COMPILE"},
        Words{"--compilation-config", R"({"cudagraph_mode": "FULL_AND_PIECEWISE", "cache_dir": "x"})"}}) {
    EXPECT_EQ(complaint(words), "nothing was wrong") << words.front();
  }
  for (const Words& words :
       {Words{"-cc", "0"}, Words{"-cc.cudagraph_mode=NONE"}, Words{"-cc.cudagraph_capture_sizes+", "4"},
        Words{"-cc", R"({"mode": 3, "cudagraph_mode": "PIECEWISE"})"}}) {
    EXPECT_THAT(complaint(words), HasSubstr("not modelled yet")) << words.front();
  }
}

struct Wrong {
  Words words;
  const char* says;
};

TEST(VllmFlags, WrongUseIsOneLineThatSaysWhatToDo) {
  for (const Wrong& wrong : {
           Wrong{{"--max-num-seq", "5"}, "did you mean --max-num-seqs?"},
           Wrong{{"--no-enable-prefix-cachin"}, "did you mean --no-enable-prefix-caching?"},
           Wrong{{"--goodputt=1"}, "unknown flag --goodputt: did you mean --goodput?"},
           Wrong{{"-x"}, "unknown flag -x; --help lists all"},
           Wrong{{"--no-max-num-seqs"}, "unknown flag"},
           Wrong{{"--port.x", "5"}, "unknown flag"},
           Wrong{{"--max-num-seqs"}, "--max-num-seqs needs a value"},
           Wrong{{"--max-num-seqs", "--strict"}, "--max-num-seqs needs a value"},
           Wrong{{"--goodput"}, "needs at least one value"},
           Wrong{{"--max-num-seqs", "many"}, "a whole number is needed"},
           Wrong{{"--max-num-seqs", "1k"}, "a whole number is needed"},
           Wrong{{"--max-num-seqs", ""}, "a whole number is needed"},
           Wrong{{"--sim-seed", "-1"}, "a whole number is needed of at least 0"},
           Wrong{{"--watermark", "low"}, "a number is needed"},
           Wrong{{"--watermark", "nan"}, "a number is needed"},
           Wrong{{"--strict=maybe"}, "true or false is needed"},
           Wrong{{"-sc", "{"}, "is not a JSON object"},
           Wrong{{"-sc", "[1]"}, "is not a JSON object"},
           Wrong{{"-sc.method", "ngram", "-sc.method.x", "1"}, "contradicts what was given before"},
           Wrong{{"VLLM_ATTENTION_BACKEND=X", "vllm", "serve"},
                 "environment variable VLLM_ATTENTION_BACKEND"},
           Wrong{{"a", "b"}, "'b' is one argument too many"},
           Wrong{{"a\nb"}, "control character"},
           Wrong{{"--gpu", "h\n100"}, "control character"},
       }) {
    const std::string said = complaint(wrong.words);
    EXPECT_THAT(said, HasSubstr(wrong.says)) << wrong.words.front();
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
}

TEST(VllmFlags, HelpNamesEveryFlagUnderAHeading) {
  const std::string help = help_text();
  for (const Flag& flag : flags()) {
    EXPECT_THAT(help, HasSubstr(fmt::format("--{}", flag.name))) << flag.name;
    EXPECT_TRUE(flag.section.empty() || help.find(flag.section) != std::string::npos) << flag.section;
  }
  EXPECT_THAT(help, HasSubstr("example"));
}

}  // namespace
}  // namespace kneepoint::sim
