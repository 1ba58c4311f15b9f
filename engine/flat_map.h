// A hash map in one array: linear probing, and deletion that closes the gap.
//
// The engine keeps two maps that change in almost every step: block key to
// block, request id to slot. A node-based map would allocate each time; this one
// allocates only when it grows, and leaves no tombstones behind, so its cost
// does not depend on how long a run has lasted.
//
// Nobody iterates over it: the order of its entries means nothing.
//
// Source  D. Knuth, The Art of Computer Programming 3, section 6.4, algorithm R.
#pragma once

#include <boost/assert.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kneepoint::engine {

/// Spreads the bits of a key; the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
[[nodiscard]] constexpr std::uint64_t spread_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// `Hash` maps a Key to 64 well spread bits.
template <typename Key, typename Value, typename Hash>
class FlatMap {
 public:
  FlatMap() : entries_(kSmallest) {}

  [[nodiscard]] std::size_t size() const { return size_; }

  /// The value of `key`, or null. Valid until the next insert() or erase().
  [[nodiscard]] Value* find(const Key& key) {
    const std::size_t at = position(key);
    return entries_[at].used ? &entries_[at].value : nullptr;
  }
  [[nodiscard]] const Value* find(const Key& key) const {
    const std::size_t at = position(key);
    return entries_[at].used ? &entries_[at].value : nullptr;
  }

  /// Before  `key` is not there.
  void insert(const Key& key, const Value& value) {
    if (2 * (size_ + 1) > entries_.size()) {
      grow();
    }
    Entry& entry = entries_[position(key)];
    BOOST_ASSERT_MSG(!entry.used, "FlatMap: key inserted twice");
    entry = {key, value, true};
    ++size_;
  }

  /// Before  `key` is there.
  void erase(const Key& key) {
    std::size_t gap = position(key);
    BOOST_ASSERT_MSG(entries_[gap].used, "FlatMap: erased key is not there");
    // Whoever stands behind the gap and would have liked to stand at or before it moves into it.
    for (std::size_t at = next(gap); entries_[at].used; at = next(at)) {
      const std::size_t home = home_of(entries_[at].key);
      if (((at - home) & mask()) >= ((at - gap) & mask())) {
        entries_[gap] = entries_[at];
        gap = at;
      }
    }
    entries_[gap].used = false;
    --size_;
  }

 private:
  static constexpr std::size_t kSmallest = 16;  // A power of two, as every size after it.

  struct Entry {
    Key key{};
    Value value{};
    bool used = false;
  };

  [[nodiscard]] std::size_t mask() const { return entries_.size() - 1; }
  [[nodiscard]] std::size_t next(std::size_t at) const { return (at + 1) & mask(); }
  [[nodiscard]] std::size_t home_of(const Key& key) const {
    return static_cast<std::size_t>(Hash{}(key)) & mask();
  }

  /// Where `key` stands, or the gap where it would.
  [[nodiscard]] std::size_t position(const Key& key) const {
    std::size_t at = home_of(key);
    while (entries_[at].used && !(entries_[at].key == key)) {
      at = next(at);
    }
    return at;
  }

  void grow() {
    std::vector<Entry> old(2 * entries_.size());
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.used) {
        entries_[position(entry.key)] = entry;
      }
    }
  }

  std::vector<Entry> entries_;  // At most half full.
  std::size_t size_ = 0;
};

}  // namespace kneepoint::engine
