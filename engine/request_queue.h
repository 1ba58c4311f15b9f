// The queue of those who wait.
//
// One ordered heap serves both policies. Under "priority" it orders by
// (priority, arrival, id), smaller first, and "front" and "back" both just mean
// "in its place". Under "fcfs" a request put at the back gets a number larger
// than any before, one put at the front a number smaller than any, and the heap
// orders by that number:
//
//     back a, back b, front c   ->   c(-1) a(1) b(2)
//
// A heap that knows where each request stands also takes one out of the middle
// (an abort) in logarithmic time, which a deque would not.
//
// Set-aside requests stay in this queue and carry a mark, `deferred`; the queue
// only counts them (vLLM 0.32.0; before, they had a queue of their own).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/request_table.h"
#include "engine/scheduler_config.h"

namespace kneepoint::engine {

class RequestQueue {
 public:
  explicit RequestQueue(SchedulingPolicy policy) : policy_(policy) {}

  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(heap_.size()); }
  [[nodiscard]] std::int64_t num_deferred() const { return num_deferred_; }

  /// Before  the queue is not empty.
  [[nodiscard]] Slot front() const { return heap_.front().slot; }
  Slot pop_front();

  /// Before  `slot`, which holds `request`, is not in the queue. Its mark does not
  ///         change while it is.
  void push_back(Slot slot, const Request& request);
  void push_front(Slot slot, const Request& request);

  /// Takes a request out of the middle. Before: it is in the queue.
  void remove(Slot slot);

  /// All of them in order. For tests and traces: sorts a copy.
  [[nodiscard]] std::vector<Slot> in_order() const;

 private:
  struct Entry {
    std::int64_t priority = 0;
    std::int64_t order = 0;  // Arrival, or the number given under fcfs.
    RequestId id = kNoRequest;
    Slot slot = kNoSlot;
    bool deferred = false;
  };

  [[nodiscard]] static bool before(const Entry& a, const Entry& b);
  void push(const Entry& entry);
  void settle(std::size_t index);  // Moves the entry up or down to where it belongs.
  void place(std::size_t index, const Entry& entry);

  SchedulingPolicy policy_;
  std::vector<Entry> heap_;
  std::vector<std::int32_t> index_of_;  // Where in the heap a slot stands.
  std::int64_t first_ = 0;              // Smallest and largest number given under fcfs.
  std::int64_t last_ = 0;
  std::int64_t num_deferred_ = 0;
};

}  // namespace kneepoint::engine
