// The model's free queue: a vector, used from its front.
#include <algorithm>

#include "tests/laws/engine/obvious_engine.h"

namespace kneepoint::laws {

ObviousPool::ObviousPool(int num_blocks, Mutation mutation)
    : mutation_(mutation),
      holders_(index(num_blocks), 0),
      keys_(index(num_blocks)),
      was_hit_(index(num_blocks), false) {
  holders_[0] = 1;
  for (int block = 1; block < num_blocks; ++block) {
    free_.push_back(block);
  }
}

int ObviousPool::find(const engine::BlockKey& key) const {
  int found = 0;
  for (const int block : registered_) {
    if (*keys_[index(block)] == key && (found == 0 || mutation_ == Mutation::kFindsLatestDuplicate)) {
      found = block;
    }
  }
  return found;
}

int ObviousPool::take() {
  const bool from_tail = mutation_ == Mutation::kTakesFromTail;
  const int block = from_tail ? free_.back() : free_.front();
  free_.erase(from_tail ? free_.end() - 1 : free_.begin());
  std::erase(registered_, block);
  keys_[index(block)].reset();
  was_hit_[index(block)] = false;
  holders_[index(block)] = 1;
  return block;
}

void ObviousPool::hold(int block) {
  std::erase(free_, block);
  was_hit_[index(block)] = true;
  ++holders_[index(block)];
}

void ObviousPool::free_in_order(const std::vector<int>& blocks) {
  std::vector<int> with_key;
  std::vector<int> without_key;
  for (const int block : blocks) {
    if (block != 0 && --holders_[index(block)] == 0) {
      (keys_[index(block)] ? with_key : without_key).push_back(block);
    }
  }
  if (mutation_ == Mutation::kFreesUnkeyedOneByOne) {
    std::ranges::reverse(without_key);
  }
  const bool unkeyed_to_tail = mutation_ == Mutation::kFreesUnkeyedToTail;
  free_.insert(unkeyed_to_tail ? free_.end() : free_.begin(), without_key.begin(), without_key.end());
  for (const int block : with_key) {
    auto where = free_.end();
    if (mutation_ == Mutation::kFreesKeyedToHead) {
      where = free_.begin();
    } else if (mutation_ == Mutation::kHitKeepsItsAge && was_hit_[index(block)]) {
      where = std::ranges::find_if(free_, [this](int other) { return keys_[index(other)].has_value(); });
    }
    free_.insert(where, block);
  }
}

void ObviousPool::register_key(int block, const engine::BlockKey& key) {
  keys_[index(block)] = key;
  registered_.push_back(block);
}

void ObviousPool::refresh(int block) {
  if (std::erase(free_, block) > 0) {
    free_.push_back(block);
  }
}

}  // namespace kneepoint::laws
