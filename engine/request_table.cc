#include "engine/request_table.h"

#include <boost/assert.hpp>
#include <utility>

namespace kneepoint::engine {

Slot RequestTable::add(const NewRequest& request) {
  BOOST_ASSERT_MSG(request.id != kNoRequest && find(request.id) == kNoSlot,
                   "CONSERVE_REQUESTS: each request id is used once");
  Slot slot = static_cast<Slot>(requests_.size());
  if (vacant_.empty()) {
    requests_.emplace_back();
  } else {
    slot = vacant_.back();
    vacant_.pop_back();
  }
  Request& r = (*this)[slot];
  std::vector<BlockId> storage = std::move(r.blocks);
  r = Request{};
  r.blocks = std::move(storage);
  r.id = request.id;
  r.prompt_tokens = request.prompt_tokens;
  r.num_tokens = request.prompt_tokens;
  r.max_tokens = request.max_tokens;
  r.reserve_output_tokens = request.reserve_output_tokens;
  r.adapter = request.adapter;
  r.priority = request.priority;
  r.arrival = request.arrival;
  r.may_stop = request.may_stop;
  by_id_.insert(request.id, slot);
  return slot;
}

void RequestTable::remove(Slot slot) {
  Request& r = (*this)[slot];
  BOOST_ASSERT_MSG(r.blocks.empty() && r.num_unnamed == 0, "CONSERVE_BLOCKS: a request left without giving its blocks back");
  by_id_.erase(r.id);
  r.id = kNoRequest;
  vacant_.push_back(slot);
}

Slot RequestTable::find(RequestId id) const {
  const Slot* slot = by_id_.find(id);
  return slot == nullptr ? kNoSlot : *slot;
}

}  // namespace kneepoint::engine
