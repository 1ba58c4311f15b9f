// Who works on a study: this process alone, or the ranks of an MPI job.
//
// Points are handed out one by one to whoever is free, so that a rank with slow
// points holds nobody up. Rank 0 holds the list; the others ask it for the next.
// What a point's result is does not depend on who found it.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace kneepoint::sim {

class Cluster {
 public:
  virtual ~Cluster() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// The lowest rank that failed, or -1; all ranks call it together, after what may
  /// fail on one of them.
  [[nodiscard]] virtual int first_failed(bool failed_here) = 0;

  /// All ranks call it together; `points` of rank 0 are what there is to do, and
  /// it is told of each that is over, one at a time.
  virtual void begin(std::vector<std::int64_t> points, std::function<void()> one_over) = 0;

  /// The next point for a worker that has finished one or (`finished` false) is
  /// new; nothing when all are handed out. From any thread.
  [[nodiscard]] virtual std::optional<std::int64_t> next(bool finished) = 0;

  /// All ranks call it together, each when its own workers have ended; returns
  /// when all records of all ranks are written.
  virtual void end() = 0;

  /// Ends all ranks at once with exit status 2. Returns where there is only one.
  virtual void abort() = 0;
};

/// Another rank has failed, and says why; this one only ends.
struct OtherRankFailed : std::exception {};

/// Calls `work`, which may fail on one rank and not on another, on all of them.
/// Where it failed first the exception goes on; the others throw OtherRankFailed.
void agree(Cluster& cluster, const std::function<void()>& work);

/// The list that is handed out, for whoever holds it. From any thread.
class PointList {
 public:
  void begin(std::vector<std::int64_t> points, std::function<void()> one_over) {
    points_ = std::move(points);
    one_over_ = std::move(one_over);
  }
  [[nodiscard]] std::optional<std::int64_t> next(bool finished) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (finished && one_over_) {
      one_over_();
    }
    return given_ < points_.size() ? std::optional(points_[given_++]) : std::nullopt;
  }

 private:
  std::mutex mutex_;
  std::vector<std::int64_t> points_;
  std::size_t given_ = 0;
  std::function<void()> one_over_;
};

class OneProcess final : public Cluster {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] int first_failed(bool failed_here) override { return failed_here ? 0 : -1; }
  void begin(std::vector<std::int64_t> points, std::function<void()> one_over) override {
    list_.begin(std::move(points), std::move(one_over));
  }
  [[nodiscard]] std::optional<std::int64_t> next(bool finished) override { return list_.next(finished); }
  void end() override {}
  void abort() override {}

 private:
  PointList list_;
};

/// The ranks of the MPI job this process was started in, or itself alone. Throws
/// UsageError in an MPI job if built without MPI: each rank would do everything.
[[nodiscard]] std::unique_ptr<Cluster> make_cluster();

}  // namespace kneepoint::sim
