// The cohort: running requests that do nothing but decode.
//
// Such a request computes one token a step, so all that is needed of it follows
// from the step's number. It joined with some context, and at step s has
//
//     context = offset + s             (offset = context at joining - step of joining)
//
// The cohort's context sum is the sum of the offsets plus count times s. With
// blocks of B tokens a member needs a new block when the tokens it has computed,
// offset + s - 1, fill its blocks: at the steps s = 1 - offset (mod B). So members
// are kept in B buckets, and a step looks into one of them. The step that samples
// the last token a member may have is known when it joins.
//
// A step therefore costs time for those whose block is full and those who come
// or go, not for those who run.
//
// Worked example (B = 4). a joins at step 10 with 6 tokens computed: context 7,
// offset -3. At step 12 its context is 9: it writes token 9, the first of its
// third block, and 12 = 1 - (-3) = 4 = 0 (mod 4) is a step at which it needs one.
//
// Members are ordered by `order`, their place in the queue of those who run.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "engine/request_table.h"

namespace kneepoint::engine {

struct CohortMember {
  std::int64_t order = 0;
  std::int64_t offset = 0;     ///< Context minus step number.
  std::int64_t last_step = 0;  ///< Samples its last token.
  Slot slot = kNoSlot;
};

class Cohort {
 public:
  explicit Cohort(std::int32_t block_size);

  [[nodiscard]] bool empty() const { return members_.empty(); }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(members_.size()); }
  [[nodiscard]] std::span<const CohortMember> members() const { return members_; }

  /// Before  nobody of this order is a member.
  void add(const CohortMember& member);
  /// Before  somebody of this order is a member.
  void remove(std::int64_t order);
  void clear();

  /// Members in front of `order`.
  [[nodiscard]] std::int64_t count_before(std::int64_t order) const;

  [[nodiscard]] std::int64_t context_sum(std::int64_t step) const { return offset_sum_ + size() * step; }
  /// Before  not empty.
  [[nodiscard]] std::int64_t context_max(std::int64_t step);

  /// The earliest last step of a member; the largest number if there is none.
  [[nodiscard]] std::int64_t next_end();
  /// A member whose last step is next_end(). Before: not empty.
  [[nodiscard]] CohortMember next_to_end();

  /// Who begins a new block at `step`: (order, slot), by order.
  using Entry = std::pair<std::int64_t, Slot>;
  [[nodiscard]] std::span<const Entry> begin_block(std::int64_t step) const {
    return buckets_[static_cast<std::size_t>(step % block_size_)];
  }

 private:
  [[nodiscard]] std::vector<Entry>& bucket_of(const CohortMember& member);
  [[nodiscard]] const CohortMember* find(std::int64_t order) const;

  std::int64_t block_size_;
  std::vector<CohortMember> members_;  // By order.
  std::vector<std::vector<Entry>> buckets_;
  std::int64_t offset_sum_ = 0;
  // Entries of those who are gone stay until they come to the top.
  std::priority_queue<std::pair<std::int64_t, std::int64_t>> longest_;  // (offset, order)
  std::priority_queue<std::pair<std::int64_t, std::int64_t>, std::vector<std::pair<std::int64_t, std::int64_t>>,
                      std::greater<>>
      ends_;  // (last step, order)
};

}  // namespace kneepoint::engine
