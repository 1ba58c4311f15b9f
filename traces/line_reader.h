// Lines of a text file, however it ends them, in bounded memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "traces/byte_source.h"

namespace kneepoint::traces {

/// Longest line that is kept: a prompt of a million tokens in blocks of 16 needs half of it.
inline constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;

class LineReader {
 public:
  /// Throws TraceError for UTF-16 text; a UTF-8 byte order mark is left out.
  LineReader(std::unique_ptr<ByteSource> bytes, std::string name, std::size_t max_line_bytes = kMaxLineBytes);

  enum class Got {
    kLine,
    kTooLong,  ///< The line was passed over, none of it kept.
    kEnd,
  };
  /// The next line, without its LF or CR LF; valid until the next call.
  [[nodiscard]] Got next(std::string_view& line);

  [[nodiscard]] const std::string& name() const { return name_; }
  /// Of the line last given, from 1.
  [[nodiscard]] std::uint64_t line_number() const { return line_number_; }
  /// The line last given had no LF: it is the last one, and may have been cut.
  [[nodiscard]] bool unterminated() const { return unterminated_; }
  /// The packing of the file ended in its middle.
  [[nodiscard]] bool cut() const { return bytes_->cut(); }
  [[nodiscard]] std::size_t max_line_bytes() const { return max_line_bytes_; }

 private:
  bool refill();
  Got skip_line();

  std::unique_ptr<ByteSource> bytes_;
  std::string name_;
  std::size_t max_line_bytes_;
  std::string buffer_;
  std::size_t begin_ = 0;  // Of what was not given yet,
  std::size_t end_ = 0;    // and its end.
  std::uint64_t line_number_ = 0;
  bool unterminated_ = false;
};

}  // namespace kneepoint::traces
