// The framing of a trace file: TraceFile's fields, each a Checked (trace.proto).
//
//     tag, length of the Checked | 0x0a, length of content, content | 0x15, crc32
//
// Written and read by hand, since a generic parser would take the whole file
// into memory, skip fields it does not know, and believe any length it is told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kneepoint::traces {

/// Field number in TraceFile << 3 | 2 (length-delimited).
enum class FrameTag : unsigned char { kHeader = 0x0a, kBlock = 0x12, kTrailer = 0x1a };

inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr int kRecordsPerBlock = 4096;
/// A block ends early when its records have so many segments together.
inline constexpr int kSegmentsPerBlock = 1 << 16;
/// More than the largest block a writer makes: 4096 records and kSegmentsPerBlock
/// + kMaxSegments segments at their longest.
inline constexpr std::size_t kMaxFrameBytes = std::size_t{64} << 20;
/// Trailer content: 9 + 9 + 34 bytes.
inline constexpr std::size_t kTrailerContentBytes = 52;
/// Its frame: tag and length, tag and length, content, tag and crc32.
inline constexpr std::size_t kTrailerFrameBytes = 2 + 2 + kTrailerContentBytes + 5;

[[nodiscard]] std::string make_frame(FrameTag tag, std::string_view content);

/// What the bytes of a Checked hold if the checksum agrees; else `problem` says
/// what is wrong.
struct CheckedContent {
  std::string_view content;
  std::string_view problem;  ///< Empty if all is well.
};
[[nodiscard]] CheckedContent open_checked(std::string_view bytes);

/// Reads a varint of up to 5 bytes off the front of `bytes`; false if there is none.
[[nodiscard]] bool take_length(std::string_view& bytes, std::size_t& value);

}  // namespace kneepoint::traces
