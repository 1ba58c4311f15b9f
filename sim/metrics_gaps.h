// A pool of many durations that take few values: inter-token gaps.
//
// A million requests have hundreds of millions of gaps, but a step gives the
// same gap to everyone in it. So values are counted, in a hash table of 16 bytes a
// slot, exactly, until the table would outgrow 64 MiB. Then they move into a
// logarithmic histogram, 1024 bins to each doubling:
//
//     bin width / value <= 1/1024,   so a bin's middle is within 0.05 % of its values
//
// Percentiles, between two such middles, and the largest value are within 0.05 %
// then, too. Mean and standard deviation stay exact: 128-bit totals.
//
// Gaps can be taken out again, since a request that fails has never had any. One
// step's gaps come one after the other, so most additions are to the last value: a
// comparison. New values wait in a short queue and go into the table together, as
// each alone would wait for memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/percentiles.h"

namespace kneepoint::sim {

class GapPool {
 public:
  /// Three quarters of the slots of a table of 64 MiB.
  static constexpr std::size_t kMaxDistinct = (std::size_t{64} << 20) / 16 / 4 * 3;

  explicit GapPool(std::size_t max_distinct = kMaxDistinct);

  /// `count` gaps of `gap_ns` >= 0.
  void add(std::int64_t gap_ns, std::int64_t count = 1) {
    if (num_queued_ > 0 && queue_[num_queued_ - 1].value == gap_ns) {
      queue_[num_queued_ - 1].count += count;
      return;
    }
    if (num_queued_ == queue_.size()) {
      empty_queue();
    }
    queue_[num_queued_++] = {gap_ns, count};
  }
  /// Takes out one that was added.
  void remove(std::int64_t gap_ns);

  /// Whether percentiles are exact: no more than max_distinct values so far.
  [[nodiscard]] bool exact();
  [[nodiscard]] LatencyStats stats();

 private:
  struct Counted {
    std::int64_t value = -1;  // A gap, or the middle of a bin; -1: a free slot.
    std::int64_t count = 0;
  };

  void empty_queue();
  void add_to_table(std::int64_t gap_ns, std::int64_t count);
  [[nodiscard]] std::size_t slot_of(std::int64_t value) const;
  void grow();
  void to_histogram();
  [[nodiscard]] std::vector<Counted> sorted() const;

  std::size_t max_distinct_;
  std::vector<Counted> slots_;  // A power of two, probed linearly; none while there are bins.
  std::size_t distinct_ = 0;
  std::array<Counted, 64> queue_;   // Newest last; neighbours differ.
  std::size_t num_queued_ = 0;
  std::vector<std::int64_t> bins_;  // Empty while exact.
  ExactTotals bin_totals_;          // Of what is in bins; slots are summed when asked.
};

/// Bin of a value >= 0, and the middle of a bin: values below 2048 have a bin each.
[[nodiscard]] std::size_t gap_bin(std::int64_t value);
[[nodiscard]] std::int64_t gap_bin_middle(std::size_t bin);

}  // namespace kneepoint::sim
