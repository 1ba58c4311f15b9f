// The clients that drove the measured servers (serving_rows.h), as clients of a
// simulation.
#pragma once

#include <cstdint>
#include <memory>

#include "calibrate/serving_rows.h"
#include "sim/client.h"

namespace kneepoint::calibrate {

/// `concurrency` in flight, the first ones all at 0; all input lengths are drawn
/// before all output lengths, as the measuring client did. The time from a
/// completion to the send that takes its slot is uniform in [0, jitter_ms).
[[nodiscard]] std::unique_ptr<sim::Client> make_client(const ClosedLoopClient& client, std::uint64_t seed);

/// Constant-rate stages from 0 on; request i asks prompt i mod distinct_prompts,
/// all of which begin with the same system prompt. No random number is drawn.
[[nodiscard]] std::unique_ptr<sim::Client> make_client(const OpenLoopClient& client);

/// Requests of one stage.
[[nodiscard]] std::uint64_t requests_of_stage(const OpenLoopClient& client, std::size_t stage);

/// Requests at their recorded times.
[[nodiscard]] std::unique_ptr<sim::Client> make_client(const RecordedClient& client);

}  // namespace kneepoint::calibrate
