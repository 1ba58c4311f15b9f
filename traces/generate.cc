#include "traces/generate.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "traces/random_stream.h"
#include "traces/record_check.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

class Generator final : public RecordSource {
 public:
  explicit Generator(GenerateOptions options)
      : options_(std::move(options)),
        arrivals_(make_arrivals(options_.arrivals)),
        prompts_(options_.arrivals.seed, "prompt-lengths"),
        outputs_(options_.arrivals.seed, "output-lengths") {}

  [[nodiscard]] bool next(TraceRecord& record) override {
    if (given_ == options_.arrivals.num_requests) return false;
    ++given_;
    record = TraceRecord{};
    const double arrival_s = arrivals_->next_s();
    if (!(arrival_s * 1e9 <= static_cast<double>(kMaxTime.count()))) {
      throw TraceError(
          fmt::format("request {} would arrive after more than ten years; raise --rate", given_));
    }
    record.arrival = std::chrono::nanoseconds(static_cast<std::int64_t>(std::floor(arrival_s * 1e9 + 0.5)));
    record.prompt_tokens = options_.prompt_lengths->quantile(prompts_.uniform());
    record.output_tokens = options_.output_lengths->quantile(outputs_.uniform());
    return true;
  }

 private:
  GenerateOptions options_;
  std::unique_ptr<ArrivalTimes> arrivals_;
  RandomStream prompts_;
  RandomStream outputs_;
  std::uint64_t given_ = 0;
};

}  // namespace

std::unique_ptr<RecordSource> generate(GenerateOptions options) {
  return std::make_unique<Generator>(std::move(options));
}

}  // namespace kneepoint::traces
