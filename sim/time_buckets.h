// Time cut into a bounded number of buckets whose width doubles as the run grows.
//
// Nobody knows beforehand how long a run will be. With N buckets of width w, an
// event at or after N * w halves them first: buckets 0 and 1 become bucket 0, 2
// and 3 bucket 1, ..., and w doubles. So memory is constant, the buckets always
// start at 0 and are of equal width, at least half of them are in use, and the
// result is what cutting into the final width from the start would have given:
// it does not depend on when the doubling came.
#pragma once

#include <boost/assert.hpp>
#include <cstdint>
#include <vector>

#include "sim/sim_time.h"

namespace kneepoint::sim {

/// Bucket has `merge(const Bucket& later)`; a default one is empty.
template <typename Bucket>
class TimeBuckets {
 public:
  /// Before  `count` is even.
  explicit TimeBuckets(std::size_t count, SimDuration width = std::chrono::microseconds(1))
      : width_(width), buckets_(count) {
    BOOST_ASSERT(count % 2 == 0 && count > 0);
  }

  /// The bucket that `time` is in; valid until the next call. Before  time >= 0.
  [[nodiscard]] Bucket& at(SimTime time) {
    std::size_t index = index_of(time);
    while (index >= buckets_.size()) {
      double_width();
      index = index_of(time);
    }
    used_ = index >= used_ ? index + 1 : used_;
    return buckets_[index];
  }
  /// When the bucket after that of `time` begins.
  [[nodiscard]] SimTime end_of(SimTime time) const {
    return SimTime(width_ * (time.time_since_epoch() / width_ + 1));
  }

  [[nodiscard]] SimDuration width() const { return width_; }
  [[nodiscard]] std::size_t used() const { return used_; }  ///< Up to the last one that was asked for.
  [[nodiscard]] const Bucket& operator[](std::size_t index) const { return buckets_[index]; }
  [[nodiscard]] SimTime begin_of(std::size_t index) const {
    return SimTime(width_ * static_cast<std::int64_t>(index));
  }

 private:
  [[nodiscard]] std::size_t index_of(SimTime time) const {
    return static_cast<std::size_t>(time.time_since_epoch() / width_);
  }
  void double_width() {
    width_ *= 2;
    const std::size_t half = buckets_.size() / 2;
    for (std::size_t i = 0; i < half; ++i) {
      Bucket both = std::move(buckets_[2 * i]);
      both.merge(buckets_[2 * i + 1]);
      buckets_[i] = std::move(both);
    }
    for (std::size_t i = half; i < buckets_.size(); ++i) {
      buckets_[i] = Bucket{};
    }
    used_ = (used_ + 1) / 2;
  }

  SimDuration width_;
  std::vector<Bucket> buckets_;
  std::size_t used_ = 0;
};

}  // namespace kneepoint::sim
