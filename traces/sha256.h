// SHA-256 (FIPS 180-4) of streams and files, by OpenSSL.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace kneepoint::traces {

using Sha256Digest = std::array<unsigned char, 32>;

/// Hashes bytes as they come. Copying copies what was hashed so far.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256& other);
  Sha256& operator=(const Sha256& other);
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::string_view bytes);
  /// Of the bytes so far; more may follow.
  [[nodiscard]] Sha256Digest digest() const;
  /// digest() as 64 lower-case hex digits.
  [[nodiscard]] std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Hex digest of a file's bytes. Throws TraceError if it cannot be read.
[[nodiscard]] std::string sha256_file(const std::filesystem::path& path);

}  // namespace kneepoint::traces
