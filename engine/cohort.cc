#include "engine/cohort.h"

#include <algorithm>
#include <boost/assert.hpp>
#include <limits>

namespace kneepoint::engine {

Cohort::Cohort(std::int32_t block_size) : block_size_(block_size), buckets_(static_cast<std::size_t>(block_size)) {}

std::vector<Cohort::Entry>& Cohort::bucket_of(const CohortMember& member) {
  const std::int64_t step = ((1 - member.offset) % block_size_ + block_size_) % block_size_;
  return buckets_[static_cast<std::size_t>(step)];
}

void Cohort::add(const CohortMember& member) {
  const auto at = std::ranges::lower_bound(members_, member.order, {}, &CohortMember::order);
  BOOST_ASSERT_MSG(at == members_.end() || at->order != member.order, "CONSERVE_REQUESTS: joined the cohort twice");
  members_.insert(at, member);
  std::vector<Entry>& bucket = bucket_of(member);
  const Entry entry{member.order, member.slot};
  bucket.insert(std::ranges::upper_bound(bucket, entry), entry);
  offset_sum_ += member.offset;
  longest_.emplace(member.offset, member.order);
  ends_.emplace(member.last_step, member.order);
}

void Cohort::remove(std::int64_t order) {
  const auto at = std::ranges::lower_bound(members_, order, {}, &CohortMember::order);
  BOOST_ASSERT_MSG(at != members_.end() && at->order == order, "CONSERVE_REQUESTS: left the cohort without being in it");
  std::vector<Entry>& bucket = bucket_of(*at);
  bucket.erase(std::ranges::lower_bound(bucket, Entry{order, at->slot}));
  offset_sum_ -= at->offset;
  members_.erase(at);
}

void Cohort::clear() {
  members_.clear();
  for (std::vector<Entry>& bucket : buckets_) {
    bucket.clear();
  }
  offset_sum_ = 0;
  longest_ = {};
  ends_ = {};
}

const CohortMember* Cohort::find(std::int64_t order) const {
  const auto at = std::ranges::lower_bound(members_, order, {}, &CohortMember::order);
  return at != members_.end() && at->order == order ? &*at : nullptr;
}

std::int64_t Cohort::count_before(std::int64_t order) const {
  return std::ranges::lower_bound(members_, order, {}, &CohortMember::order) - members_.begin();
}

std::int64_t Cohort::context_max(std::int64_t step) {
  BOOST_ASSERT_MSG(!members_.empty(), "nobody has a longest context");
  for (;; longest_.pop()) {
    const auto [offset, order] = longest_.top();
    const CohortMember* const member = find(order);
    if (member != nullptr && member->offset == offset) {
      return offset + step;
    }
  }
}

std::int64_t Cohort::next_end() {
  for (; !members_.empty(); ends_.pop()) {
    const auto [last_step, order] = ends_.top();
    const CohortMember* const member = find(order);
    if (member != nullptr && member->last_step == last_step) {
      return last_step;
    }
  }
  return std::numeric_limits<std::int64_t>::max();
}

CohortMember Cohort::next_to_end() {
  const std::int64_t end = next_end();
  static_cast<void>(end);
  BOOST_ASSERT_MSG(!members_.empty(), "nobody is left to end");
  return *find(ends_.top().second);
}

}  // namespace kneepoint::engine
