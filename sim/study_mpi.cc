// The ranks of an MPI job as a Cluster (sim/study_cluster.h).
//
// One message asks ("I have finished one", or "I am new"), one answers (a point,
// or -1: none left). On rank 0 a thread of its own answers; it alone calls MPI
// while points are worked on, as on other ranks whoever asks does, one at a time.
// Hence MPI_THREAD_SERIALIZED is enough. The thread looks for questions a few
// thousand times a second instead of in MPI_Recv, which would keep a core busy.
//
// Part of the tool and not of the library: nothing else needs MPI at its start.
#include "sim/study_cluster.h"

#include <array>
#include <cstdlib>
#include <string_view>

#include "sim/usage_error.h"

#ifdef KNEEPOINT_HAS_MPI
#define OMPI_SKIP_MPICXX 1  // Only the C interface.
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <chrono>
#include <thread>
#endif

namespace kneepoint::sim {
namespace {

// What launchers tell a process of its job: Open MPI, PMIx, MPICH and Slurm's PMI.
[[nodiscard]] bool launched_by_mpi() {
  constexpr std::array kVariables{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"};
  for (const char* variable : kVariables) {
    if (std::getenv(variable) != nullptr) {
      return true;
    }
  }
  return false;
}

#ifdef KNEEPOINT_HAS_MPI

constexpr int kAsk = 1;
constexpr int kAnswer = 2;
constexpr std::int64_t kNone = -1;
constexpr std::chrono::microseconds kBetweenLooks(200);

class MpiRanks final : public Cluster {
 public:
  MpiRanks() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    if (provided < MPI_THREAD_SERIALIZED) {
      MPI_Finalize();
      throw UsageError("study: this MPI library cannot be called from threads; use another, or --shard");
    }
  }
  ~MpiRanks() override {
    if (server_.joinable()) {
      server_.join();
    }
    MPI_Finalize();
  }
  MpiRanks(const MpiRanks&) = delete;
  MpiRanks& operator=(const MpiRanks&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  [[nodiscard]] int first_failed(bool failed_here) override {
    int first = failed_here ? rank_ : size_;
    MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return first < size_ ? first : -1;
  }

  void begin(std::vector<std::int64_t> points, std::function<void()> one_over) override {
    if (rank_ == 0) {
      list_.begin(std::move(points), std::move(one_over));
      server_ = std::thread([this] { answer_all(); });
    }
  }

  [[nodiscard]] std::optional<std::int64_t> next(bool finished) override {
    if (rank_ == 0) {
      return list_.next(finished);
    }
    const std::lock_guard<std::mutex> lock(mpi_);
    if (none_left_) {
      return std::nullopt;
    }
    const int question = finished ? 1 : 0;
    std::int64_t point = kNone;
    MPI_Send(&question, 1, MPI_INT, 0, kAsk, MPI_COMM_WORLD);
    MPI_Recv(&point, 1, MPI_INT64_T, 0, kAnswer, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    none_left_ = point == kNone;
    return none_left_ ? std::nullopt : std::optional(point);
  }

  void end() override {
    if (server_.joinable()) {
      server_.join();
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }

  void abort() override { MPI_Abort(MPI_COMM_WORLD, 2); }

 private:
  // Until every other rank has heard that nothing is left.
  void answer_all() {
    for (int asking = size_ - 1; asking > 0;) {
      int there = 0;
      MPI_Status status;
      MPI_Iprobe(MPI_ANY_SOURCE, kAsk, MPI_COMM_WORLD, &there, &status);
      if (there == 0) {
        std::this_thread::sleep_for(kBetweenLooks);
        continue;
      }
      int finished = 0;
      MPI_Recv(&finished, 1, MPI_INT, status.MPI_SOURCE, kAsk, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      const std::int64_t point = list_.next(finished != 0).value_or(kNone);
      MPI_Send(&point, 1, MPI_INT64_T, status.MPI_SOURCE, kAnswer, MPI_COMM_WORLD);
      asking -= point == kNone ? 1 : 0;
    }
  }

  int rank_ = 0;
  int size_ = 1;
  PointList list_;      // Of rank 0.
  std::thread server_;  // Of rank 0.
  std::mutex mpi_;      // Of the others: one asks at a time.
  bool none_left_ = false;
};

#endif

}  // namespace

std::unique_ptr<Cluster> make_cluster() {
  if (!launched_by_mpi()) {
    return std::make_unique<OneProcess>();
  }
#ifdef KNEEPOINT_HAS_MPI
  return std::make_unique<MpiRanks>();
#else
  const char* const size = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (size != nullptr && std::string_view(size) == "1") {
    return std::make_unique<OneProcess>();
  }
  throw UsageError(
      "study: started by mpirun, but built without MPI: each rank would do all points; install "
      "libopenmpi-dev and "
      "build again, or use --shard");
#endif
}

}  // namespace kneepoint::sim
