#include "traces/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <boost/assert.hpp>
#include <fstream>
#include <vector>

#include "traces/trace_file.h"

namespace kneepoint::traces {

struct Sha256::State {
  struct Free {
    void operator()(EVP_MD_CTX* used) const { EVP_MD_CTX_free(used); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context{EVP_MD_CTX_new()};
};

namespace {

// OpenSSL's digests fail only for want of memory or by wrong use.
void require(int ok) {
  BOOST_ASSERT_MSG(ok == 1, "OPENSSL_DIGEST: libcrypto refused SHA-256");
}

}  // namespace

Sha256::Sha256() : state_(std::make_unique<State>()) {
  require(EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr));
}

Sha256::Sha256(const Sha256& other) : state_(std::make_unique<State>()) {
  require(EVP_MD_CTX_copy_ex(state_->context.get(), other.state_->context.get()));
}

Sha256& Sha256::operator=(const Sha256& other) {
  if (this != &other) require(EVP_MD_CTX_copy_ex(state_->context.get(), other.state_->context.get()));
  return *this;
}

Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::string_view bytes) {
  require(EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()));
}

Sha256Digest Sha256::digest() const {
  const Sha256 copy(*this);  // Finishing ends a context.
  Sha256Digest out{};
  require(EVP_DigestFinal_ex(copy.state_->context.get(), out.data(), nullptr));
  return out;
}

std::string Sha256::hex() const {
  return fmt::format("{:02x}", fmt::join(digest(), ""));
}

std::string sha256_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  Sha256 hash;
  std::vector<char> buffer(1 << 16);
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || in.gcount() > 0) {
    hash.update({buffer.data(), static_cast<std::size_t>(in.gcount())});
  }
  if (!in.eof()) throw TraceError(fmt::format("{}: cannot be read", path.string()));
  return hash.hex();
}

}  // namespace kneepoint::traces
