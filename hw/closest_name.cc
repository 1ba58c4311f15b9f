#include "hw/closest_name.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <vector>

namespace kneepoint::hw {
namespace {

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// Levenshtein distance, one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = diagonal + (lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string closest_name(std::string_view typed, std::span<const std::string> known) {
  const std::string* best = nullptr;
  std::size_t best_distance = 0;
  for (const std::string& name : known) {
    const std::size_t distance = edit_distance(typed, name);
    if (best == nullptr || distance < best_distance) {
      best = &name;
      best_distance = distance;
    }
  }
  if (best == nullptr || 2 * best_distance >= std::max(best->size(), typed.size())) {
    return "";
  }
  return *best;
}

}  // namespace kneepoint::hw
