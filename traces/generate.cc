#include "traces/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "traces/random_stream.h"
#include "traces/record_check.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

using std::chrono::nanoseconds;

nanoseconds to_ns(double seconds) {
  if (!(seconds * 1e9 <= static_cast<double>(kMaxTime.count()))) {
    throw TraceError("a request would arrive after more than ten years; raise --rate or lower --requests");
  }
  return nanoseconds(static_cast<std::int64_t>(std::floor(seconds * 1e9 + 0.5)));
}

// Which system prompt a request begins with. Contents 1 .. count are theirs.
class SystemPromptChoice {
 public:
  SystemPromptChoice(const SystemPrompts& prompts, std::uint64_t seed)
      : tokens_(prompts.tokens), stream_(seed, "system-prompts") {
    if (prompts.count == 0) return;
    if (prompts.tokens < 1 || prompts.tokens > kMaxTokens / 2) {
      throw TraceError(
          fmt::format("--system-prompt-tokens is {}; it must lie in 1..{}", prompts.tokens, kMaxTokens / 2));
    }
    choice_ = parse_lengths(fmt::format("zipf:{}:{}", prompts.zipf, prompts.count), 0);
  }

  [[nodiscard]] bool any() const { return choice_ != nullptr; }
  [[nodiscard]] PromptSegment next() {
    return {static_cast<ContentId>(choice_->quantile(stream_.uniform())), 0, tokens_};
  }

 private:
  std::int64_t tokens_;
  RandomStream stream_;
  std::unique_ptr<LengthModel> choice_;
};

class Plain final : public RecordSource {
 public:
  explicit Plain(GenerateOptions options)
      : options_(std::move(options)),
        arrivals_(make_arrivals(options_.arrivals)),
        system_prompts_(options_.system_prompts, options_.arrivals.seed),
        next_content_(static_cast<ContentId>(options_.system_prompts.count)) {}

  [[nodiscard]] bool next(TraceRecord& record) override {
    if (given_ == options_.arrivals.num_requests) return false;
    ++given_;
    record = TraceRecord{};
    record.arrival = to_ns(arrivals_->next_s());
    const LengthPairs::Pair lengths = options_.lengths->next();
    record.prompt_tokens = lengths.prompt;
    record.output_tokens = lengths.output;
    if (system_prompts_.any()) {
      record.prompt = {system_prompts_.next(), {++next_content_, 0, lengths.prompt}};
      record.prompt_tokens += record.prompt.front().length;
    }
    return true;
  }

 private:
  GenerateOptions options_;
  std::unique_ptr<ArrivalTimes> arrivals_;
  SystemPromptChoice system_prompts_;
  ContentId next_content_;
  std::uint64_t given_ = 0;
};

// A session between two of its requests.
struct Session {
  std::uint64_t number = 0;
  std::int64_t turns_left = 0;       // After the one under way.
  std::int64_t tool_calls_left = 0;  // In the one under way.
  TraceRecord request;               // The next one.
};

struct Later {  // Orders the heap: earliest first, then the older session.
  bool operator()(const Session& a, const Session& b) const {
    return std::tie(a.request.arrival, a.number) > std::tie(b.request.arrival, b.number);
  }
};

class Sessions final : public RecordSource {
 public:
  explicit Sessions(GenerateOptions options)
      : options_(std::move(options)),
        arrivals_(make_arrivals(options_.arrivals)),
        system_prompts_(options_.system_prompts, options_.arrivals.seed),
        turns_(options_.arrivals.seed, "turns"),
        think_(options_.arrivals.seed, "think-times"),
        tools_(options_.arrivals.seed, "tools"),
        next_content_(static_cast<ContentId>(options_.system_prompts.count)) {
    check();
    begin_next();
  }

  [[nodiscard]] bool next(TraceRecord& record) override {
    if (given_ == options_.arrivals.num_requests) return false;
    ++given_;
    while (under_way_.empty() || starting_.request.arrival <= under_way_.top().request.arrival) {
      under_way_.push(std::move(starting_));
      begin_next();
    }
    Session session = under_way_.top();
    under_way_.pop();
    record = session.request;
    if (continue_session(session)) under_way_.push(std::move(session));
    return true;
  }

 private:
  void check() const {
    const SessionOptions& s = options_.sessions;
    const auto require = [](bool holds, std::string_view option, double value) {
      if (!holds)
        throw TraceError(fmt::format("{} is {}; it must not be negative or endless", option, value));
    };
    require(s.think_s >= 0 && std::isfinite(s.think_s), "--think-time", s.think_s);
    require(s.tool_s >= 0 && std::isfinite(s.tool_s), "--tool-time", s.tool_s);
    require(s.nominal_tpot_s >= 0 && std::isfinite(s.nominal_tpot_s), "--nominal-tpot", s.nominal_tpot_s);
    require(s.max_context >= 0, "--max-context", static_cast<double>(s.max_context));
  }

  // `starting_` becomes the session that begins after the last one.
  void begin_next() {
    starting_ = Session{};
    starting_.number = ++num_sessions_;
    TraceRecord& request = starting_.request;
    request.arrival = to_ns(arrivals_->next_s());
    request.session = starting_.number;
    if (system_prompts_.any()) add_segment(request, system_prompts_.next());
    starting_.turns_left = options_.sessions.turns->quantile(turns_.uniform()) - 1;
    begin_turn(starting_);
  }

  static void add_segment(TraceRecord& request, const PromptSegment& segment) {
    request.prompt.push_back(segment);
    request.prompt_tokens += segment.length;
  }

  void begin_turn(Session& session) {
    const LengthPairs::Pair lengths = options_.lengths->next();
    const SessionOptions& s = options_.sessions;
    session.tool_calls_left = s.tool_calls ? s.tool_calls->quantile(tools_.uniform()) : 0;
    ask(session, lengths.prompt, lengths.output);
  }

  void ask(Session& session, std::int64_t new_tokens, std::int64_t output_tokens) {
    add_segment(session.request, {++next_content_, 0, new_tokens});
    session.request.output_tokens = output_tokens;
    session.request.output_content = ++next_content_;
  }

  // Makes the request that follows the one just given; false if none does.
  bool continue_session(Session& session) {
    const SessionOptions& s = options_.sessions;
    const bool tool = session.tool_calls_left > 0;
    if (!tool && session.turns_left == 0) return false;
    TraceRecord& request = session.request;
    const double pause_s = tool ? tools_.exponential() * s.tool_s : think_.exponential() * s.think_s;
    const double answer_s = static_cast<double>(request.output_tokens) * s.nominal_tpot_s;
    request.think_time = to_ns(pause_s);
    request.arrival += request.think_time + to_ns(answer_s);
    request.after_previous = true;
    add_segment(request, {request.output_content, 0, request.output_tokens});
    if (tool) {
      --session.tool_calls_left;
      ask(session, s.tool_tokens->quantile(tools_.uniform()), options_.lengths->next().output);
    } else {
      --session.turns_left;
      begin_turn(session);
    }
    const std::int64_t limit = s.max_context > 0 ? s.max_context : kMaxTokens;
    return request.prompt_tokens + request.output_tokens <= limit;
  }

  GenerateOptions options_;
  std::unique_ptr<ArrivalTimes> arrivals_;
  SystemPromptChoice system_prompts_;
  RandomStream turns_, think_, tools_;
  ContentId next_content_;
  Session starting_;
  std::uint64_t num_sessions_ = 0;
  std::priority_queue<Session, std::vector<Session>, Later> under_way_;
  std::uint64_t given_ = 0;
};

}  // namespace

std::unique_ptr<RecordSource> generate(GenerateOptions options) {
  if (options.sessions.turns) return std::make_unique<Sessions>(std::move(options));
  return std::make_unique<Plain>(std::move(options));
}

}  // namespace kneepoint::traces
