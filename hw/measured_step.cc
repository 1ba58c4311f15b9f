#include "hw/measured_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace kneepoint::hw {

namespace {

struct Parts {
  std::int64_t prefill_tokens = 0;
  double attention_pairs = 0;
  std::int64_t sequences = 0;
  std::int64_t context_sum = 0;
  std::int64_t max_chunk_context = 0;
};

Parts parts_of(const StepShape& shape) {
  Parts parts;
  parts.sequences = shape.decodes.count;
  parts.context_sum = shape.decodes.context_sum;
  for (const Chunk& chunk : shape.chunks) {
    if (chunk.num_tokens == 1) {  // The last token of a prompt costs what a decode does.
      ++parts.sequences;
      parts.context_sum += chunk.num_computed_tokens + 1;
      continue;
    }
    const double n = static_cast<double>(chunk.num_tokens);
    parts.prefill_tokens += chunk.num_tokens;
    parts.attention_pairs += n * static_cast<double>(chunk.num_computed_tokens) + n * (n + 1) / 2;
    parts.max_chunk_context = std::max(parts.max_chunk_context, chunk.num_computed_tokens + chunk.num_tokens);
  }
  return parts;
}

double sequences_s(const MeasuredServer& server, double count) {
  double count_before = 0;
  double time_before = 0;
  for (const SequencePoint& point : server.sequences) {
    if (count <= static_cast<double>(point.count)) {
      const double share = (count - count_before) / (static_cast<double>(point.count) - count_before);
      return time_before + share * (point.time_s.value - time_before);
    }
    count_before = static_cast<double>(point.count);
    time_before = point.time_s.value;
  }
  return time_before + (count - count_before) * server.sequence_beyond_s.value;
}

std::chrono::nanoseconds to_nanoseconds(double seconds) {
  return std::chrono::nanoseconds(std::llround(seconds * 1e9));
}

class MeasuredStepTimeModel final : public StepTimeModel {
 public:
  explicit MeasuredStepTimeModel(MeasuredServer server) : server_(std::move(server)) {}

  [[nodiscard]] StepTime step_time(const StepShape& shape) const override {
    const bool prefill = std::any_of(shape.chunks.begin(), shape.chunks.end(),
                                     [](const Chunk& chunk) { return chunk.num_tokens > 1; });
    return {.host = to_nanoseconds(prefill ? server_.gap_with_prefill_s.value : 0.0),
            .device = to_nanoseconds(measured_elapsed_s(server_, shape))};
  }

  [[nodiscard]] std::chrono::nanoseconds turnaround(std::int64_t num_outputs) const override {
    return to_nanoseconds(server_.gap_base_s.value +
                          server_.gap_per_output_s.value * static_cast<double>(num_outputs));
  }

  [[nodiscard]] FrontEndTimes front_end() const override {
    return {.arrival = to_nanoseconds(server_.arrival_s.value),
            .output = to_nanoseconds(server_.output_s.value),
            .output_per_request = to_nanoseconds(server_.output_per_request_s.value)};
  }

  [[nodiscard]] std::vector<Extrapolation> extrapolations(const StepShape& shape) const override {
    const Parts parts = parts_of(shape);
    std::vector<Extrapolation> found;
    const auto check = [&](const char* what, std::int64_t is, std::int64_t most) {
      if (is > most) found.push_back({what, fmt::format("{} in a step, fitted up to {}", is, most)});
    };
    check("measured step: prefill tokens", parts.prefill_tokens, server_.max_prefill_tokens);
    check("measured step: single-token requests", parts.sequences, server_.max_sequences);
    check("measured step: context sum", parts.context_sum, server_.max_context_sum);
    check("measured step: context of a prefill chunk", parts.max_chunk_context, server_.max_chunk_context);
    return found;
  }

  [[nodiscard]] std::string provenance() const override {
    return fmt::format("step times measured on a real server ({} on {}, {}): {}", server_.model,
                       server_.machine, server_.release, server_.source);
  }

 private:
  MeasuredServer server_;
};

}  // namespace

double measured_elapsed_s(const MeasuredServer& server, const MeasuredStepParts& parts) {
  return server.base_s.value + server.prefill_token_s.value * parts.prefill_tokens +
         server.attention_pair_s.value * parts.attention_pairs + sequences_s(server, parts.sequences) +
         server.context_token_s.value * parts.context_sum;
}

double measured_elapsed_s(const MeasuredServer& server, const StepShape& shape) {
  const Parts parts = parts_of(shape);
  return measured_elapsed_s(server, {.prefill_tokens = static_cast<double>(parts.prefill_tokens),
                                     .attention_pairs = parts.attention_pairs,
                                     .sequences = static_cast<double>(parts.sequences),
                                     .context_sum = static_cast<double>(parts.context_sum)});
}

std::unique_ptr<StepTimeModel> make_measured_step_time_model(MeasuredServer server) {
  return std::make_unique<MeasuredStepTimeModel>(std::move(server));
}

}  // namespace kneepoint::hw
