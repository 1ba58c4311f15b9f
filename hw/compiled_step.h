// The step's terms (hw/step_terms.h) as integer tables.
//
// A simulation evaluates millions of steps; a smooth formula takes microseconds
// and its last digit depends on the machine's maths library. So terms are turned
// into tables of whole ticks, 2^-16 ns, and a step's time is a few look-ups and
// additions, less than 100 ns:
//
//     by tokens, logit rows ...   one entry a size, exact
//     decodes (n, sum, longest)   linear in context sum and longest context on the
//                                 two triangles of each cell, for each count n
//     chunk (new, old)            linear in the old tokens on each cell, for each
//                                 number of new tokens
//
// Cells are 1/64 of an octave wide (hw/lattice.h). The smooth terms bend so little
// on one that a step is off by less than 0.1 % (tests/hw/compiled_step_test.cc).
//
//     longest                     Values at corners are rounded up to multiples of
//       | 01 ------ 11            the cell's larger side, a power of two ticks, so
//       |  | \  1 |               that all slopes are whole ticks. Slopes are never
//       |  |  \   |               negative, neighbouring triangles meet, and to the
//       |  | 0  \ |               right and above sides only grow: no time falls as
//       | 00 ------ 10 --- sum    a step grows, not by a nanosecond.
//
// k decode steps in a row raise the sum by n and the longest by 1 each: inside a
// triangle their times are floor((a i + b) / 2^16), an addition and a shift a step,
// equal to single steps to the nanosecond.
//
// Tables fill on first use. What they hold does not depend on the order of use.
// Not for several threads at once: each simulation has its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "hw/lattice.h"
#include "hw/step_terms.h"

namespace kneepoint::hw {

/// Cells by key in one array, probed linearly: a look-up is one cache line or two.
template <class Cell>
class CellTable {
 public:
  static constexpr std::uint64_t kNoKey = ~std::uint64_t{0};

  /// The cell of `key`, made by `make()` if it is new. Valid until the next call.
  template <class Make>
  const Cell& get(std::uint64_t key, Make make) {
    std::size_t at = place(key);
    if (entries_[at].key == kNoKey) {
      if (3 * ++size_ > 2 * entries_.size()) {
        grow();
        at = place(key);
      }
      entries_[at] = {key, make()};
    }
    return entries_[at].cell;
  }

 private:
  struct Entry {
    std::uint64_t key = kNoKey;
    Cell cell;
  };
  [[nodiscard]] std::size_t place(std::uint64_t key) const {
    const std::size_t mask = entries_.size() - 1;
    std::size_t at = static_cast<std::size_t>((key * 0x9e3779b97f4a7c15ULL) >> 20) & mask;
    while (entries_[at].key != key && entries_[at].key != kNoKey) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Entry> old(2 * entries_.size());
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.key != kNoKey) entries_[place(entry.key)] = entry;
    }
  }

  std::vector<Entry> entries_ = std::vector<Entry>(64);
  std::size_t size_ = 0;
};

class CompiledTerms {
 public:
  static constexpr int kTickBits = 16;

  /// `terms` and `costs` must outlive this.
  CompiledTerms(const StepTerms& terms, const ServerCosts& costs);

  /// The device's time, rounded up to a nanosecond.
  [[nodiscard]] std::chrono::nanoseconds device_time(const StepShape& step) const;

  /// Device times of steps in a row that begin with `first` and each give every decode
  /// one token more. For steps of decodes alone, without windows.
  void decode_run(const StepShape& first, std::span<StepTime> times) const;

 private:
  // A plane over a triangle, through the cell's corner at the origin.
  struct Plane {
    std::int64_t base = 0;           // Ticks.
    std::int64_t sum_slope = 0;      // Ticks for each token of context more.
    std::int64_t longest_slope = 0;  // Ticks for each token of the longest more.
  };
  struct DecodeCell {
    Plane lower, upper;
  };
  struct Line {
    std::int64_t base = 0;
    std::int64_t slope = 0;
  };
  struct ChunkCell {
    Line alone, shared;
  };
  // Where in which cell a cohort of decodes is.
  struct Place {
    LatticeCell sum, longest;
    std::int64_t right = 0, up = 0;  // From the cell's corner.
    [[nodiscard]] bool is_lower() const {
      return right * longest.width + up * sum.width <= sum.width * longest.width;
    }
  };
  // What a look-up found last; steps in a row mostly ask for it again.
  struct LastCell {
    std::uint64_t key = CellTable<DecodeCell>::kNoKey;
    DecodeCell cell;
  };

  [[nodiscard]] static Place place_of(std::int64_t count, std::int64_t sum, std::int64_t longest);
  [[nodiscard]] static std::int64_t steps_inside(const Place& place, std::int64_t count);
  [[nodiscard]] std::int64_t rows_ticks(Rows rows, std::int64_t size) const;
  [[nodiscard]] const Plane& decode_plane(std::size_t attention, std::int64_t count,
                                          const Place& place) const;
  [[nodiscard]] DecodeCell make_decode_cell(std::size_t attention, std::int64_t count,
                                            const Place& place) const;
  [[nodiscard]] std::int64_t decode_ticks(std::size_t attention, const DecodeAttentionShape& shape) const;
  [[nodiscard]] const ChunkCell& chunk_cell(std::size_t attention, std::int64_t num_tokens,
                                            const LatticeCell& computed) const;
  [[nodiscard]] std::int64_t chunk_ticks(std::size_t attention, std::span<const Chunk> chunks) const;
  [[nodiscard]] std::int64_t attention_ticks(const StepShape& step) const;
  [[nodiscard]] std::int64_t other_ticks(const StepShape& step) const;

  const StepTerms& terms_;
  std::int64_t kernel_launches_ = 0;  // Ticks to launch every kernel by itself.
  std::int64_t layers_ = 0;
  std::int64_t step_ = 0;
  std::int64_t sequence_ = 0;
  std::int64_t unrecorded_ = 0;
  std::int64_t mixed_ = 0;  // Factor of decode attention beside a prefill, in 2^-12.
  mutable std::vector<std::int64_t> by_rows_[4];
  mutable std::vector<CellTable<DecodeCell>> decodes_;  // By attention; so the next two.
  mutable std::vector<LastCell> last_decode_;
  mutable std::vector<CellTable<ChunkCell>> chunks_;
};

}  // namespace kneepoint::hw
