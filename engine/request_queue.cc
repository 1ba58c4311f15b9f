#include "engine/request_queue.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <tuple>

namespace kneepoint::engine {

Slot RequestQueue::pop_front() {
  BOOST_ASSERT_MSG(!heap_.empty(), "CONSERVE_REQUESTS: nobody waits");
  const Slot slot = front();
  remove(slot);
  return slot;
}

void RequestQueue::push_back(Slot slot, const Request& request) {
  const bool fcfs = policy_ == SchedulingPolicy::kFcfs;
  push({fcfs ? 0 : request.priority, fcfs ? ++last_ : request.arrival, request.id, slot, request.deferred});
}

void RequestQueue::push_front(Slot slot, const Request& request) {
  const bool fcfs = policy_ == SchedulingPolicy::kFcfs;
  push({fcfs ? 0 : request.priority, fcfs ? --first_ : request.arrival, request.id, slot, request.deferred});
}

void RequestQueue::remove(Slot slot) {
  const auto index = static_cast<std::size_t>(index_of_[static_cast<std::size_t>(slot)]);
  BOOST_ASSERT_MSG(index < heap_.size() && heap_[index].slot == slot,
                   "CONSERVE_REQUESTS: took somebody out who does not wait");
  num_deferred_ -= heap_[index].deferred ? 1 : 0;
  const Entry last = heap_.back();
  heap_.pop_back();
  if (index < heap_.size()) {
    place(index, last);
    settle(index);
  }
}

std::vector<Slot> RequestQueue::in_order() const {
  std::vector<Entry> sorted = heap_;
  std::sort(sorted.begin(), sorted.end(), before);
  std::vector<Slot> slots;
  slots.reserve(sorted.size());
  for (const Entry& entry : sorted) {
    slots.push_back(entry.slot);
  }
  return slots;
}

bool RequestQueue::before(const Entry& a, const Entry& b) {
  return std::tie(a.priority, a.order, a.id) < std::tie(b.priority, b.order, b.id);
}

void RequestQueue::push(const Entry& entry) {
  const auto slot = static_cast<std::size_t>(entry.slot);
  if (index_of_.size() <= slot) {
    index_of_.resize(slot + 1, -1);
  }
  num_deferred_ += entry.deferred ? 1 : 0;
  heap_.push_back(entry);
  settle(heap_.size() - 1);
}

void RequestQueue::settle(std::size_t index) {
  const Entry entry = heap_[index];
  while (index > 0 && before(entry, heap_[(index - 1) / 2])) {
    place(index, heap_[(index - 1) / 2]);
    index = (index - 1) / 2;
  }
  for (std::size_t child = 2 * index + 1; child < heap_.size(); child = 2 * index + 1) {
    if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) {
      ++child;
    }
    if (!before(heap_[child], entry)) {
      break;
    }
    place(index, heap_[child]);
    index = child;
  }
  place(index, entry);
}

void RequestQueue::place(std::size_t index, const Entry& entry) {
  heap_[index] = entry;
  index_of_[static_cast<std::size_t>(entry.slot)] = static_cast<std::int32_t>(index);
}

}  // namespace kneepoint::engine
