#include "sim/markup.h"

#include <cstddef>

namespace kneepoint::sim {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

unsigned char byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

// Bytes of the UTF-8 character that starts at `at`; 0 if none does. Table 3-7 of
// the Unicode Standard: no overlong forms, no surrogates, nothing above U+10FFFF.
std::size_t character_length(std::string_view text, std::size_t at) {
  const unsigned char first = byte_at(text, at);
  const std::size_t length = first < 0x80                     ? 1
                             : first >= 0xC2 && first <= 0xDF ? 2
                             : first >= 0xE0 && first <= 0xEF ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
  if (length == 0 || at + length > text.size()) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(text, at + i) & 0xC0U) != 0x80U) {
      return 0;
    }
  }
  const unsigned char second = length > 1 ? byte_at(text, at + 1) : 0;
  const bool refused = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                       (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return refused ? 0 : length;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = character_length(text, i);
    const char c = text[i];
    if (length == 0) {
      safe += kReplacement;
      ++i;
      continue;
    }
    if (length > 1) {
      safe += text.substr(i, length);
    } else if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else if (c == '"') {
      safe += "&quot;";
    } else if (c == '\'') {
      safe += "&#39;";
    } else if ((byte_at(text, i) < 0x20 && c != '\n' && c != '\t') || byte_at(text, i) == 0x7F) {
      safe += kReplacement;
    } else {
      safe += c;
    }
    i += length;
  }
  return safe;
}

}  // namespace kneepoint::sim
