// How long a step takes: the door between sim (which knows what the step
// computes) and hw (which knows what that costs).
//
// StepShape holds the plain numbers that a step's time depends on; StepTimeModel
// turns one into nanoseconds. Two makers: the roofline one (hw/roofline_step.h)
// walks the operator graph of a model on a GPU; the measured one is a handful of
// coefficients that calibrate/ fits to a real server's own step log.
//
// A step costs time in two places that can overlap:
//
//     host     scheduling, input preparation, sampling, output handling
//     device   the kernels of the forward pass
//
// Step i starts on the device when the device is free and the host is ready:
//
//     start(i) = max(end(i - 1), planned(i) + host(i)),   end(i) = start(i) + device(i)
//
// Synchronous scheduling plans step i at end(i - 1), so host time adds up;
// asynchronous scheduling plans it a step earlier, so it hides behind the device.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kneepoint::hw {

/// Tokens of one request that are not a plain decode: a prefill chunk, or a
/// decode with drafts to verify.
struct Chunk {
  std::int64_t num_tokens = 0;           ///< Computed in this step.
  std::int64_t num_computed_tokens = 0;  ///< Already in the KV cache; read, not computed.
};

/// Requests that compute exactly one token.
struct Decodes {
  std::int64_t count = 0;
  std::int64_t context_sum = 0;  ///< Tokens of KV read, the new one included, over all of them.
  std::int64_t context_max = 0;
  /// For each entry of StepTimeModel::attention_windows(): sum of min(context, window).
  std::span<const std::int64_t> window_context_sums{};
};

/// How the step reaches the GPU (spec.md 6).
enum class GraphMode : std::uint8_t {
  kFull,       ///< One CUDA graph replays the whole step.
  kPiecewise,  ///< Graphs between the attention calls.
  kNone,       ///< Every kernel is launched by itself.
};

struct StepShape {
  Decodes decodes;
  std::span<const Chunk> chunks;
  std::int64_t num_tokens = 0;     ///< decodes.count + all chunk tokens.
  std::int64_t padded_tokens = 0;  ///< num_tokens rounded up to the CUDA graph's size.
  std::int64_t num_sampled = 0;    ///< Rows that go through the LM head: one a sampling request, one more a draft.
  std::int64_t num_outputs_before = 0;  ///< Requests to which the step before gave tokens.
  GraphMode graph_mode = GraphMode::kFull;

  [[nodiscard]] std::int64_t num_requests() const {
    return decodes.count + static_cast<std::int64_t>(chunks.size());
  }
};

struct StepTime {
  std::chrono::nanoseconds host{0};
  std::chrono::nanoseconds device{0};
  /// With pipeline parallelism `device` is the slowest stage, after which the next batch can begin; the result is
  /// there so much later, when all other stages are through: end(i) = start(i) + device(i) + pipeline(i).
  std::chrono::nanoseconds pipeline{0};
};

/// What lies between client and scheduler, in and out.
struct FrontEndTimes {
  std::chrono::nanoseconds arrival{0};         ///< From the client's send until the scheduler can see the request.
  std::chrono::nanoseconds output{0};          ///< From a step's end until its first output is at the client.
  std::chrono::nanoseconds output_per_request{0};  ///< Each further output of the same step comes so much later.
};

/// Something the model was not measured for, once per kind and run.
struct Extrapolation {
  std::string what;   ///< Operator and quantity: "decode attention: context".
  std::string shape;  ///< The first shape outside, against the measured range.
};

class StepTimeModel {
 public:
  virtual ~StepTimeModel() = default;

  /// Time of one step. Never falls as tokens, contexts or requests grow; never
  /// below what peak FLOP/s and bandwidth allow.
  [[nodiscard]] virtual StepTime step_time(const StepShape& shape) const = 0;

  [[nodiscard]] virtual FrontEndTimes front_end() const = 0;

  /// From the end of a step that gave tokens to `num_outputs` requests until the engine looks at its inputs and
  /// plans the next: an arrival within it still joins. StepTime::host comes after the plan.
  [[nodiscard]] virtual std::chrono::nanoseconds turnaround(std::int64_t /*num_outputs*/) const {
    return std::chrono::nanoseconds{0};
  }

  /// Times of as many steps in a row as `times` has room for, the first of which is `first`, a step of decodes alone
  /// that samples for all of them; each step after gives every decode one token of context more. Equal to
  /// step_time() to the nanosecond; faster where the model knows how.
  /// Requires attention_windows() to be empty.
  virtual void decode_run(const StepShape& first, std::span<StepTime> times) const {
    StepShape step = first;
    for (StepTime& time : times) {
      time = step_time(step);
      step.decodes.context_sum += step.decodes.count;
      step.decodes.context_max += 1;
    }
  }

  /// Window lengths of the layers that attend to a window, one per kind of
  /// layer; empty for a model with full attention only.
  [[nodiscard]] virtual std::span<const std::int64_t> attention_windows() const { return {}; }

  /// Where `shape` leaves what was measured; empty inside.
  [[nodiscard]] virtual std::vector<Extrapolation> extrapolations(const StepShape& shape) const = 0;

  /// One line for the report: which rates, from where.
  [[nodiscard]] virtual std::string provenance() const = 0;
};

}  // namespace kneepoint::hw
