#include "traces/line_reader.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "traces/trace_file.h"

namespace kneepoint::traces {

LineReader::LineReader(std::unique_ptr<ByteSource> bytes, std::string name, std::size_t max_line_bytes)
    : bytes_(std::move(bytes)), name_(std::move(name)), max_line_bytes_(max_line_bytes) {
  buffer_.resize(std::min(max_line_bytes_ + 2, std::size_t{1} << 18));
  while (end_ < 4 && refill()) {
  }
  const std::string_view start(buffer_.data(), end_);
  if (start.starts_with("\xff\xfe") || start.starts_with("\xfe\xff")) {
    throw TraceError(fmt::format("{}: is UTF-16 text; save it as UTF-8", name_));
  }
  if (start.starts_with("\xef\xbb\xbf")) begin_ = 3;
}

// More bytes behind those in the buffer; false at the end of the file. The
// buffer grows up to the longest line that is kept.
bool LineReader::refill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) buffer_.resize(std::min(2 * buffer_.size(), max_line_bytes_ + 2));
  const std::size_t got = bytes_->read(buffer_.data() + end_, buffer_.size() - end_);
  end_ += got;
  return got > 0;
}

LineReader::Got LineReader::skip_line() {
  do {
    const char* start = buffer_.data() + begin_;
    if (const void* newline = std::memchr(start, '\n', end_ - begin_)) {
      begin_ += static_cast<std::size_t>(static_cast<const char*>(newline) - start) + 1;
      return Got::kTooLong;
    }
    begin_ = end_;
  } while (refill());
  unterminated_ = true;
  return Got::kTooLong;
}

LineReader::Got LineReader::next(std::string_view& line) {
  std::size_t searched = 0;
  while (true) {
    const char* start = buffer_.data() + begin_;
    const std::size_t held = end_ - begin_;
    const void* newline = std::memchr(start + searched, '\n', held - searched);
    if (newline == nullptr && held < max_line_bytes_ + 2) {
      searched = held;
      if (refill()) continue;
      if (end_ == begin_) return Got::kEnd;
    }
    ++line_number_;
    start = buffer_.data() + begin_;
    const auto line_end = newline == nullptr ? start + (end_ - begin_) : static_cast<const char*>(newline);
    if (static_cast<std::size_t>(line_end - start) > max_line_bytes_) return skip_line();
    unterminated_ = newline == nullptr;
    const std::size_t length =
        unterminated_ ? end_ - begin_ : static_cast<std::size_t>(static_cast<const char*>(newline) - start);
    line = std::string_view(start, length);
    begin_ += length + (unterminated_ ? 0 : 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return Got::kLine;
  }
}

}  // namespace kneepoint::traces
