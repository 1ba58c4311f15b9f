// How many drafts of a request survive verification.
//
// Synthetic acceptance, as vLLM's rejection_sample_method=synthetic: the user
// gives unconditional rates, rate i being the probability that draft i and all
// before it are accepted (so they do not rise). One uniform number decides: the
// number of accepted drafts is the number of rates above it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "traces/random_stream.h"

namespace kneepoint::sim {

class DraftAcceptance {
 public:
  DraftAcceptance(std::vector<double> rates, std::uint64_t seed)
      : rates_(std::move(rates)), random_(seed, "draft acceptance") {}

  /// Accepted among `num_drafts`. Without rates: all.
  [[nodiscard]] std::int32_t draw(std::int32_t num_drafts) {
    if (rates_.empty()) {
      return num_drafts;
    }
    const double u = random_.uniform();
    std::int32_t accepted = 0;
    while (accepted < num_drafts && static_cast<std::size_t>(accepted) < rates_.size() &&
           u < rates_[static_cast<std::size_t>(accepted)]) {
      ++accepted;
    }
    return accepted;
  }

 private:
  std::vector<double> rates_;
  traces::RandomStream random_;
};

}  // namespace kneepoint::sim
