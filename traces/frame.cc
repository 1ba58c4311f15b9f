#include "traces/frame.h"

#include <zlib.h>

namespace kneepoint::traces {
namespace {

constexpr char kContentTag = 0x0a;  // Checked.content
constexpr char kCrcTag = 0x15;      // Checked.crc32
constexpr std::size_t kCrcBytes = 4;

std::uint32_t crc32_of(std::string_view bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

void append_length(std::string& out, std::size_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>((value & 0x7f) | 0x80));
  out.push_back(static_cast<char>(value));
}

}  // namespace

std::string make_frame(FrameTag tag, std::string_view content) {
  std::string checked(1, kContentTag);
  append_length(checked, content.size());
  checked += content;
  checked.push_back(kCrcTag);
  for (std::uint32_t crc = crc32_of(content), i = 0; i < kCrcBytes; ++i, crc >>= 8) {
    checked.push_back(static_cast<char>(crc & 0xff));
  }
  std::string frame(1, static_cast<char>(tag));
  append_length(frame, checked.size());
  return frame + checked;
}

bool take_length(std::string_view& bytes, std::size_t& value) {
  value = 0;
  for (std::size_t i = 0; i < 5 && i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    value |= static_cast<std::size_t>(byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      bytes.remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

CheckedContent open_checked(std::string_view bytes) {
  constexpr std::string_view kDamaged = "damaged (its framing is broken)";
  if (bytes.empty() || bytes.front() != kContentTag) return {{}, kDamaged};
  bytes.remove_prefix(1);
  std::size_t size = 0;
  if (!take_length(bytes, size) || bytes.size() != size + 1 + kCrcBytes || bytes[size] != kCrcTag) {
    return {{}, kDamaged};
  }
  std::uint32_t stored = 0;
  for (std::size_t i = 0; i < kCrcBytes; ++i) {
    stored |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[size + 1 + i])) << (8 * i);
  }
  const std::string_view content = bytes.substr(0, size);
  if (crc32_of(content) != stored) return {{}, "damaged (its checksum does not agree)"};
  return {content, {}};
}

}  // namespace kneepoint::traces
