#include "calibrate/microbench/all_reduce_bench.h"

#include <cuda_runtime.h>

#if __has_include(<nccl.h>)

#include <dlfcn.h>
#include <nccl.h>

#include <algorithm>
#include <barrier>
#include <exception>
#include <map>
#include <numeric>
#include <thread>

#include "calibrate/microbench/cuda_support.h"

namespace kneepoint::microbench {

struct AllReduceBench::Library {
  void* handle = nullptr;
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclCommInitAll) init_all = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;

  std::map<std::int64_t, std::vector<ncclComm_t>> comms;  // By number of GPUs: making them takes a second.

  ~Library() {
    for (const auto& [gpus, group] : comms) {
      for (ncclComm_t comm : group) destroy(comm);
    }
    if (handle != nullptr) dlclose(handle);
  }
  const std::vector<ncclComm_t>& group_of(std::int64_t gpus) {
    std::vector<ncclComm_t>& group = comms[gpus];
    if (!group.empty()) return group;
    std::vector<int> devices(static_cast<std::size_t>(gpus));
    std::iota(devices.begin(), devices.end(), 0);
    std::vector<ncclComm_t> made(devices.size());
    check(init_all(made.data(), static_cast<int>(gpus), devices.data()), "ncclCommInitAll");
    return group = made;
  }
  template <class Function>
  bool find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    return function != nullptr;
  }
  void check(ncclResult_t status, const char* what) const {
    if (status != ncclSuccess) throw DeviceError(std::string(what) + ": " + error_string(status));
  }
};

namespace {

constexpr int kCalls = 50;  // Of a graph.

// What one GPU's thread owns.
struct Rank {
  int gpu = 0;
  ncclComm_t comm = nullptr;
  std::vector<double> us;
  std::exception_ptr failed;
};

struct DeviceMemory {
  explicit DeviceMemory(std::int64_t bytes) {
    check_cuda(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), "cudaMalloc of a message");
    check_cuda(cudaMemset(memory, 0x3c, static_cast<std::size_t>(bytes)),
               "cudaMemset");  // Small bf16 numbers.
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { cudaFree(memory); }
  void* memory = nullptr;
};

// Repeats that each rank times; all must take part in every one, so a rank that fails
// before the barrier leaves it for good.
template <class Library>
void run_rank(const Library& nccl, Rank& rank, const AllReduceShape& shape, int repeats,
              std::barrier<>& all) {
  check_cuda(cudaSetDevice(rank.gpu), "cudaSetDevice");
  const DeviceMemory message(shape.bytes);
  StreamHandle stream;
  check_cuda(cudaStreamCreate(stream.to_fill()), "cudaStreamCreate");
  Event begin;
  Event end;
  check_cuda(cudaEventCreate(begin.to_fill()), "cudaEventCreate");
  check_cuda(cudaEventCreate(end.to_fill()), "cudaEventCreate");
  const auto call = [&] {
    nccl.check(nccl.all_reduce(message.memory, message.memory, static_cast<std::size_t>(shape.bytes / 2),
                               ncclBfloat16, ncclSum, rank.comm, stream.get()),
               "ncclAllReduce");
  };
  call();  // Connections are made at the first call.
  check_cuda(cudaStreamSynchronize(stream.get()), "the first all-reduce");
  Graph graph;
  check_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
  for (int i = 0; i < kCalls; ++i) call();
  check_cuda(cudaStreamEndCapture(stream.get(), graph.to_fill()), "cudaStreamEndCapture");
  GraphExec exec;
  check_cuda(cudaGraphInstantiate(exec.to_fill(), graph.get(), 0), "cudaGraphInstantiate");
  for (int repeat = -1; repeat < repeats; ++repeat) {
    all.arrive_and_wait();
    check_cuda(cudaEventRecord(begin.get(), stream.get()), "cudaEventRecord");
    check_cuda(cudaGraphLaunch(exec.get(), stream.get()), "cudaGraphLaunch");
    check_cuda(cudaEventRecord(end.get(), stream.get()), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(end.get()), "all-reduces");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin.get(), end.get()), "cudaEventElapsedTime");
    if (repeat >= 0) rank.us.push_back(ms * 1000.0 / kCalls);  // The first one warms up.
  }
}

}  // namespace

AllReduceBench::AllReduceBench() {
  auto library = std::make_unique<Library>();
  library->handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library->handle == nullptr) return;
  const bool complete = library->find("ncclGetVersion", library->get_version) &&
                        library->find("ncclCommInitAll", library->init_all) &&
                        library->find("ncclCommDestroy", library->destroy) &&
                        library->find("ncclAllReduce", library->all_reduce) &&
                        library->find("ncclGetErrorString", library->error_string);
  if (complete) library_ = std::move(library);
}

AllReduceBench::~AllReduceBench() = default;

std::string AllReduceBench::version() const {
  int version = 0;
  if (!library_ || library_->get_version(&version) != ncclSuccess) return "";
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Timing AllReduceBench::measure(const AllReduceShape& shape, const TimingOptions& options) {
  if (!library_) throw ShapeSkipped("libnccl.so.2 cannot be loaded");
  int before = 0;
  check_cuda(cudaGetDevice(&before), "cudaGetDevice");
  std::vector<Rank> ranks(static_cast<std::size_t>(shape.gpus));
  const std::vector<ncclComm_t>& comms = library_->group_of(shape.gpus);
  std::barrier<> all(static_cast<std::ptrdiff_t>(ranks.size()));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].gpu = static_cast<int>(i);
    ranks[i].comm = comms[i];
    threads.emplace_back([&, i] {
      try {
        run_rank(*library_, ranks[i], shape, options.repeats, all);
      } catch (...) {
        ranks[i].failed = std::current_exception();
        all.arrive_and_drop();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  check_cuda(cudaSetDevice(before), "cudaSetDevice");
  Timing timing;
  timing.calls = kCalls;
  timing.implementation = "nccl";
  timing.us.assign(static_cast<std::size_t>(options.repeats), 0);
  for (const Rank& rank : ranks) {
    if (rank.failed) std::rethrow_exception(rank.failed);
    for (std::size_t i = 0; i < timing.us.size(); ++i) timing.us[i] = std::max(timing.us[i], rank.us[i]);
  }
  return timing;
}

}  // namespace kneepoint::microbench

#else  // Built without nccl.h.

namespace kneepoint::microbench {

struct AllReduceBench::Library {};
AllReduceBench::AllReduceBench() = default;
AllReduceBench::~AllReduceBench() = default;
std::string AllReduceBench::version() const {
  return "";
}
Timing AllReduceBench::measure(const AllReduceShape&, const TimingOptions&) {
  throw ShapeSkipped("built without NCCL");
}

}  // namespace kneepoint::microbench

#endif
