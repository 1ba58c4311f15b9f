// Scaling, cutting, thinning, repeating and mixing workloads.
//
// Applied in this order, whatever the order on the command line: mix, slice,
// sample, scale-rate, repeat, cap-lengths, shift. Sessions stay whole when a
// trace is thinned; a turn whose predecessors were cut away begins its session.
// Copies and mixed traces share nothing with one another: contents and sessions
// of each are renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "traces/record_source.h"

namespace kneepoint::traces {

struct MixPart {
  std::filesystem::path path;
  double share = 1;  ///< Of the requests, relative to the others' shares.
};

struct TransformOptions {
  std::vector<MixPart> inputs;                     ///< One, or several to be mixed.
  std::optional<double> slice_from_s, slice_to_s;  ///< Requests in [from, to), which then start at 0.
  double sample = 1;                               ///< Each request (session) is kept with this probability.
  double scale_rate = 1;                           ///< Arrivals come so many times as fast; think times stay.
  std::uint64_t repeat = 1;                        ///< Copies, one after another.
  bool repeat_shares = false;   ///< Copies keep contents: the second finds the first one's prefixes.
  std::int64_t cap_prompt = 0;  ///< Longer prompts are cut to so many tokens; 0: none are.
  std::int64_t cap_output = 0;
  double shift_s = 0;  ///< Added to every arrival; negative only as far as the first allows.
  std::uint64_t seed = 1;
};

class Transform : public RecordSource {
 public:
  /// What was left out or cut; complete once next() returned false.
  [[nodiscard]] virtual std::vector<std::string> notices() const = 0;
};

/// Throws TraceError for an option out of range or an input that cannot be read.
/// Inputs are of any format that import.h knows by its looks.
[[nodiscard]] std::unique_ptr<Transform> transform(const TransformOptions& options);

}  // namespace kneepoint::traces
