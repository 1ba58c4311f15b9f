// The text of --help: what is simulated line by line, what is not as lists.
#include <fmt/format.h>

#include "sim/vllm_flags.h"

namespace kneepoint::sim {
namespace {

constexpr std::size_t kWidth = 110;

void append_line(std::string& text, const Flag& flag) {
  const std::string name = fmt::format("--{}{}{}", flag.name, flag.alias.empty() ? "" : ", ", flag.alias);
  text += fmt::format("  {:<41} {}\n", name, flag.help);
}

void append_to_list(std::string& text, std::size_t& column, const Flag& flag) {
  if (column + flag.name.size() + 3 > kWidth) {
    text += "\n ";
    column = 1;
  }
  text += fmt::format(" --{}", flag.name);
  column += flag.name.size() + 3;
}

}  // namespace

std::string help_text() {
  std::string text =
      "simulate --trace FILE.pb [MODEL] [flags]: replay a workload through a simulated vLLM 0.32 server\n"
      "simulate knee --trace FILE.pb [...]     : at which load the latency breaks, and what binds there\n"
      "simulate capacity [...]                 : what limits concurrency, as tables\n"
      "simulate compare A B                    : two results or configurations, paired by seed\n"
      "simulate explain [...]                  : what one step costs, operator by operator\n"
      "simulate matrix [...]                   : the standard benchmark, concurrencies by contexts\n"
      "simulate study FILE.textproto           : many runs from one file, resumable, on many machines\n"
      "simulate --reproduce result.json --trace FILE.pb: whether the same comes out again\n"
      "simulate verify DIR                     : whether a result is as it was written\n"
      "\n"
      "  example   simulate --trace bursty.pb --gpu h100 llama-3.1-8b --max-num-seqs 256 --out result\n"
      "  or paste  simulate --trace bursty.pb vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 2 --port 8000\n"
      "\n"
      "A switch --x has a form --no-x; --flag=value and underscores for dashes do as well; sizes may be\n"
      "8k (8,000) or 8K (8,192) where vLLM takes them; JSON flags also by key: -sc.method ngram.\n";
  std::string_view section;
  std::size_t column = 0;
  for (const Flag& flag : flags()) {
    const bool listed = flag.group == FlagClass::kNoInfluence || flag.group == FlagClass::kNotModelled;
    if (flag.section != section && !flag.section.empty()) {
      text += fmt::format("{}\n{}\n{}", column > 0 ? "\n" : "", flag.section, listed ? " " : "");
      column = listed ? 1 : 0;
    }
    section = flag.section;
    if (listed) {
      append_to_list(text, column, flag);
    } else {
      append_line(text, flag);
    }
  }
  return text + "\n";
}

}  // namespace kneepoint::sim
