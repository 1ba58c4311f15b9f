#include "traces/byte_source.h"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

namespace fs = std::filesystem;

class PlainFile final : public ByteSource {
 public:
  explicit PlainFile(const fs::path& path)
      : name_(path.string()), file_(path == "-" ? stdin : std::fopen(path.c_str(), "rb")) {
    if (file_ == nullptr) throw TraceError(fmt::format("{}: {}", name_, std::strerror(errno)));
  }
  ~PlainFile() override {
    if (file_ != stdin) std::fclose(file_);
  }
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;

  [[nodiscard]] std::size_t read(char* out, std::size_t size) override {
    std::size_t done = std::min(size, put_back_.size());
    put_back_.copy(out, done);
    put_back_.erase(0, done);
    if (done < size) done += std::fread(out + done, 1, size - done, file_);
    if (std::ferror(file_)) throw TraceError(fmt::format("{}: {}", name_, std::strerror(errno)));
    return done;
  }

  void put_back(std::string_view bytes) { put_back_.insert(0, bytes); }

 private:
  std::string name_;
  std::FILE* file_;
  std::string put_back_;
};

// What both unpackers do: a buffer of packed bytes, refilled when it is used up.
class Unpacker : public ByteSource {
 public:
  Unpacker(std::unique_ptr<ByteSource> packed, std::string name)
      : packed_(std::move(packed)), name_(std::move(name)), input_(std::size_t{1} << 16) {}

  [[nodiscard]] std::size_t read(char* out, std::size_t size) override {
    while (!done_) {
      if (used_ == filled_) {
        filled_ = packed_->read(input_.data(), input_.size());
        used_ = 0;
        at_end_ = filled_ == 0;
      }
      if (at_end_ && between_streams_) done_ = true;
      if (done_) break;
      const std::size_t made = unpack(out, size);
      made_ += made;
      if (made_ > kAlwaysAllowed && made_ / kMostRatio > taken_) {
        fail(fmt::format("unpacks to more than {} times its size; unpack it first if it is no trap", kMostRatio));
      }
      if (made > 0) return made;
      if (at_end_ && !between_streams_) {
        cut_ = true;
        done_ = true;
      }
    }
    return 0;
  }

  [[nodiscard]] bool cut() const override { return cut_; }

 protected:
  // Unpacks some of what `rest()` holds; says by take() how much of it was used.
  virtual std::size_t unpack(char* out, std::size_t size) = 0;

  [[nodiscard]] std::string_view rest() const { return {input_.data() + used_, filled_ - used_}; }
  void take(std::size_t bytes) {
    used_ += bytes;
    taken_ += bytes;
  }
  [[noreturn]] void fail(std::string_view what) const {
    throw TraceError(fmt::format("{}: {}", name_, what));
  }

  bool between_streams_ = true;  // A packed file may be several, end to end.

 private:
  struct Buffer {
    explicit Buffer(std::size_t size) : bytes(std::make_unique<char[]>(size)), length(size) {}
    [[nodiscard]] char* data() const { return bytes.get(); }
    [[nodiscard]] std::size_t size() const { return length; }
    std::unique_ptr<char[]> bytes;
    std::size_t length;
  };

  // Traces as text pack 3 to 50 times. Some readers keep what they read, so a file
  // that claims far more may not fill the memory.
  static constexpr std::uint64_t kMostRatio = 250;
  static constexpr std::uint64_t kAlwaysAllowed = std::uint64_t{16} << 20;

  std::unique_ptr<ByteSource> packed_;
  std::string name_;
  std::uint64_t made_ = 0, taken_ = 0;  // Bytes out, bytes in.
  Buffer input_;
  std::size_t used_ = 0;
  std::size_t filled_ = 0;
  bool at_end_ = false;
  bool done_ = false;
  bool cut_ = false;
};

class Gzip final : public Unpacker {
 public:
  Gzip(std::unique_ptr<ByteSource> packed, std::string name) : Unpacker(std::move(packed), std::move(name)) {
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) fail("no memory to unpack it");  // 16: a gzip header.
  }
  ~Gzip() override { inflateEnd(&stream_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

 private:
  std::size_t unpack(char* out, std::size_t size) override {
    const std::string_view input = rest();
    if (between_streams_ && input.front() == '\0') {  // Tape drives pad with zeros.
      take(1);
      return 0;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
    stream_.avail_in = static_cast<uInt>(input.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(size);
    between_streams_ = false;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    take(input.size() - stream_.avail_in);
    if (status == Z_STREAM_END) {
      between_streams_ = true;
      inflateReset(&stream_);
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      fail("its gzip packing is damaged");
    }
    return size - stream_.avail_out;
  }

  z_stream stream_{};
};

class Zstandard final : public Unpacker {
 public:
  Zstandard(std::unique_ptr<ByteSource> packed, std::string name)
      : Unpacker(std::move(packed), std::move(name)), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) fail("no memory to unpack it");
  }
  ~Zstandard() override { ZSTD_freeDStream(stream_); }
  Zstandard(const Zstandard&) = delete;
  Zstandard& operator=(const Zstandard&) = delete;

 private:
  std::size_t unpack(char* out, std::size_t size) override {
    const std::string_view packed = rest();
    ZSTD_inBuffer input{packed.data(), packed.size(), 0};
    ZSTD_outBuffer output{out, size, 0};
    const std::size_t status = ZSTD_decompressStream(stream_, &output, &input);
    if (ZSTD_isError(status)) fail("its zstd packing is damaged");
    take(input.pos);
    between_streams_ = status == 0;
    return output.pos;
  }

  ZSTD_DStream* stream_;
};

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error))
    throw TraceError(fmt::format("{}: is a folder; name a file", path.string()));
  auto file = std::make_unique<PlainFile>(path);
  std::array<char, 4> bytes{};
  const std::string_view magic(bytes.data(), file->read(bytes.data(), bytes.size()));
  file->put_back(magic);
  if (magic.starts_with("\x1f\x8b")) return std::make_unique<Gzip>(std::move(file), path.string());
  if (magic == "\x28\xb5\x2f\xfd") return std::make_unique<Zstandard>(std::move(file), path.string());
  return file;
}

}  // namespace kneepoint::traces
