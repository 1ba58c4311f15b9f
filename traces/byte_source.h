// Bytes of an input file, unpacked if it is packed.
//
// What a file is shows in its first bytes: 1f 8b is gzip (RFC 1952), 28 b5 2f fd
// is Zstandard (RFC 8878); its name does not matter. Memory is constant however
// much the bytes unpack to; a file that unpacks to hundreds of times its size is
// refused as a trap.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

namespace kneepoint::traces {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Up to `size` next bytes into `out`; 0 at the end. Throws TraceError if the
  /// file cannot be read or its packing is damaged.
  [[nodiscard]] virtual std::size_t read(char* out, std::size_t size) = 0;
  /// A packed file ended in the middle; read() gave what came before. Plain
  /// files do not show it.
  [[nodiscard]] virtual bool cut() const { return false; }
};

/// Throws TraceError if there is no such file. "-" is standard input, unpacked.
[[nodiscard]] std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& path);

}  // namespace kneepoint::traces
