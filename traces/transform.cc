#include "traces/transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "traces/import.h"
#include "traces/random_stream.h"
#include "traces/record_check.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

using std::chrono::nanoseconds;

nanoseconds to_ns(double seconds) {
  return nanoseconds(static_cast<std::int64_t>(std::floor(seconds * 1e9 + 0.5)));
}

// What the parts of a transform count, for notices().
struct Counts {
  std::uint64_t read = 0;
  std::uint64_t outside_slice = 0;
  std::uint64_t not_sampled = 0;
  std::uint64_t prompts_cut = 0;
  std::uint64_t outputs_cut = 0;
};

// Renames by exclusive or with a constant of the copy: one to one, and 0, which
// names nothing, stays 0 (its image is given to the one id that would become 0).
std::uint64_t renamed(std::uint64_t id, std::uint64_t copy) {
  if (id == 0 || copy == 0) return id;
  const std::uint64_t key = stream_seed(copy, "renamed");
  return id == key ? key : id ^ key;
}

void rename(TraceRecord& record, std::uint64_t copy) {
  for (PromptSegment& segment : record.prompt) segment.content = renamed(segment.content, copy);
  record.output_content = renamed(record.output_content, copy);
  record.session = renamed(record.session, copy);
}

// Keeps a share of the requests; all turns of a session or none.
class Sampler {
 public:
  Sampler(double share, std::uint64_t seed, std::string_view name)
      : share_(share), seed_(seed), name_(name), stream_(seed, name) {}

  [[nodiscard]] bool keep(const TraceRecord& record) {
    if (share_ >= 1) return true;
    if (record.session == kNoSession) return stream_.uniform() < share_;
    const std::uint64_t bits = stream_seed(seed_ ^ record.session, name_);
    return static_cast<double>(bits >> 11) * 0x1p-53 < share_;
  }

 private:
  double share_;
  std::uint64_t seed_;
  std::string name_;
  RandomStream stream_;
};

// Several traces merged by arrival, each thinned so that their requests come in
// the wanted shares; it ends with the one that ends first, since what follows
// would be another mix.
class Mix final : public RecordSource {
 public:
  Mix(const TransformOptions& options, Counts& counts) : counts_(counts) {
    std::vector<double> speed;  // Requests a second per unit of share.
    for (const MixPart& part : options.inputs) {
      if (!(part.share > 0) || !std::isfinite(part.share)) {
        throw TraceError(
            fmt::format("--mix {}:{}: the share must be above 0", part.path.string(), part.share));
      }
      const auto [count, last] = extent(part.path);
      ends_ = std::min(ends_, last);
      const double seconds = std::max(1e-9, static_cast<double>(last.count()) * 1e-9);
      speed.push_back(static_cast<double>(count) / seconds / part.share);
    }
    const double slowest = *std::ranges::min_element(speed);
    for (std::size_t i = 0; i < options.inputs.size(); ++i) {
      inputs_.push_back({import_trace(options.inputs[i].path, {}),
                         Sampler(slowest / speed[i], options.seed, fmt::format("mix-{}", i)),
                         i,
                         {},
                         true});
      advance(inputs_.back());
    }
  }

  [[nodiscard]] bool next(TraceRecord& record) override {
    Input* first = nullptr;
    for (Input& input : inputs_) {
      if (input.more && (first == nullptr || input.head.arrival < first->head.arrival)) first = &input;
    }
    if (first == nullptr) return false;
    record = first->head;
    advance(*first);
    return true;
  }

 private:
  struct Input {
    std::unique_ptr<Importer> records;
    Sampler sampler;
    std::uint64_t number;
    TraceRecord head;
    bool more;
  };

  static std::pair<std::uint64_t, nanoseconds> extent(const std::filesystem::path& path) {
    const auto records = import_trace(path, {});
    std::uint64_t count = 0;
    nanoseconds last{0};
    for (TraceRecord record; records->next(record); ++count) last = record.arrival;
    if (count == 0) throw TraceError(fmt::format("{}: holds no requests", path.string()));
    return {count, last};
  }

  void advance(Input& input) {
    while (input.records->next(input.head)) {
      ++counts_.read;
      if (input.head.arrival > ends_) {
        ++counts_.outside_slice;
        continue;
      }
      if (!input.sampler.keep(input.head)) {
        ++counts_.not_sampled;
        continue;
      }
      rename(input.head, input.number);
      return;
    }
    input.more = false;
  }

  Counts& counts_;
  nanoseconds ends_ = nanoseconds::max();
  std::vector<Input> inputs_;
};

// Slice, sample and scale-rate of one pass over the input.
class Pass final : public RecordSource {
 public:
  Pass(const TransformOptions& options, Counts& counts)
      : options_(options), counts_(counts), sampler_(options.sample, options.seed, "sample") {
    if (options.inputs.size() == 1) {
      records_ = import_trace(options.inputs.front().path, {});
    } else {
      records_ = std::make_unique<Mix>(options, counts);
    }
    if (options.slice_from_s) from_ = to_ns(*options.slice_from_s);
    if (options.slice_to_s) to_ = to_ns(*options.slice_to_s);
  }

  [[nodiscard]] bool next(TraceRecord& record) override {
    while (records_->next(record)) {
      if (options_.inputs.size() == 1) ++counts_.read;
      if (record.arrival < from_ || record.arrival >= to_) {
        ++counts_.outside_slice;
        continue;
      }
      if (!sampler_.keep(record)) {
        ++counts_.not_sampled;
        continue;
      }
      if (from_.count() > 0 && record.session != kNoSession && begun_.insert(record.session).second) {
        record.after_previous = false;
        record.think_time = nanoseconds(0);
      }
      record.arrival -= from_;
      if (options_.scale_rate != 1) {
        record.arrival = to_ns(static_cast<double>(record.arrival.count()) * 1e-9 / options_.scale_rate);
      }
      return true;
    }
    return false;
  }

 private:
  const TransformOptions& options_;
  Counts& counts_;
  Sampler sampler_;
  std::unique_ptr<RecordSource> records_;
  nanoseconds from_{0};
  nanoseconds to_ = nanoseconds::max();
  std::unordered_set<std::uint64_t> begun_;
};

class Transformed final : public Transform {
 public:
  explicit Transformed(const TransformOptions& options)
      : options_(options), shift_(to_ns(options.shift_s)), pass_(std::make_unique<Pass>(options_, counts_)) {}

  [[nodiscard]] bool next(TraceRecord& record) override {
    while (!pass_->next(record)) {
      if (num_in_pass_ == 0 || ++copy_ == options_.repeat) return false;
      // The seam between copies is a usual interval: the span grows by span / (n - 1).
      if (copy_ == 1) {
        const std::int64_t gaps = std::max<std::int64_t>(1, static_cast<std::int64_t>(num_in_pass_) - 1);
        period_ = last_ + (last_ - first_) / gaps;
      }
      num_in_pass_ = 0;
      pass_ = std::make_unique<Pass>(options_, counts_);
    }
    if (num_in_pass_++ == 0) first_ = record.arrival;
    last_ = record.arrival;
    if (!options_.repeat_shares) rename(record, copy_ == 0 ? 0 : copy_ + (std::uint64_t{1} << 32));
    record.arrival += static_cast<std::int64_t>(copy_) * period_ + shift_;
    if (record.arrival.count() < 0) {
      throw TraceError(fmt::format("--shift {} moves the first arrival before 0", options_.shift_s));
    }
    cap(record);
    return true;
  }

  [[nodiscard]] std::vector<std::string> notices() const override {
    std::vector<std::string> lines;
    const auto note = [&](std::uint64_t count, std::string_view what) {
      if (count > 0) lines.push_back(fmt::format("{} of {} requests read {}", count, counts_.read, what));
    };
    note(counts_.outside_slice, "lie outside the time kept");
    note(counts_.not_sampled, "were not drawn");
    note(counts_.prompts_cut, "had their prompt cut");
    note(counts_.outputs_cut, "had their answer cut");
    return lines;
  }

 private:
  void cap(TraceRecord& record) {
    if (options_.cap_output > 0 && record.output_tokens > options_.cap_output) {
      record.output_tokens = options_.cap_output;
      if (record.max_tokens != 0) record.max_tokens = std::min(record.max_tokens, options_.cap_output);
      ++counts_.outputs_cut;
    }
    if (options_.cap_prompt == 0 || record.prompt_tokens <= options_.cap_prompt) return;
    ++counts_.prompts_cut;
    record.prompt_tokens = options_.cap_prompt;
    std::int64_t left = options_.cap_prompt;
    for (std::size_t i = 0; i < record.prompt.size(); ++i) {
      record.prompt[i].length = std::min(record.prompt[i].length, left);
      left -= record.prompt[i].length;
      if (left == 0) record.prompt.resize(i + 1);
    }
  }

  TransformOptions options_;
  nanoseconds shift_;
  Counts counts_;
  std::unique_ptr<Pass> pass_;
  std::uint64_t copy_ = 0;
  std::uint64_t num_in_pass_ = 0;
  nanoseconds first_{0}, last_{0}, period_{0};
};

void check(const TransformOptions& o) {
  const auto require = [](bool holds, std::string_view option, double value, std::string_view must) {
    if (!holds) throw TraceError(fmt::format("{} is {}; it must be {}", option, value, must));
  };
  const double seconds = 315'619'200;  // Ten years, the longest a trace may last.
  require(o.scale_rate >= 1e-6 && o.scale_rate <= 1e6, "--scale-rate", o.scale_rate, "in 1e-6..1e6");
  require(o.sample > 0 && o.sample <= 1, "--sample", o.sample, "above 0 and at most 1");
  require(o.repeat >= 1, "--repeat", static_cast<double>(o.repeat), "at least 1");
  require(std::fabs(o.shift_s) <= seconds, "--shift", o.shift_s, "at most ten years");
  require(o.cap_prompt >= 0, "--cap-lengths", static_cast<double>(o.cap_prompt),
          "at least 1, or 0 for no cap");
  require(o.cap_output >= 0, "--cap-lengths", static_cast<double>(o.cap_output),
          "at least 1, or 0 for no cap");
  const double from = o.slice_from_s.value_or(0), to = o.slice_to_s.value_or(seconds);
  require(from >= 0 && from < to && to <= seconds, "--slice", from, "FROM:TO in seconds, FROM below TO");
}

}  // namespace

std::unique_ptr<Transform> transform(const TransformOptions& options) {
  check(options);
  return std::make_unique<Transformed>(options);
}

}  // namespace kneepoint::traces
