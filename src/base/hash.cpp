#include "base/hash.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kiln::base {
namespace {

Digest canonical_digest(XXH128_hash_t hash) noexcept {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  Digest out;
  static_assert(sizeof canonical.digest == sizeof out.bytes);
  std::memcpy(out.bytes.data(), canonical.digest, sizeof canonical.digest);
  return out;
}

}  // namespace

Digest digest_of(std::string_view bytes) noexcept {
  return canonical_digest(XXH3_128bits(bytes.data(), bytes.size()));
}

struct DigestStream::State {
  XXH3_state_t xxh3;
};
void DigestStream::Delete::operator()(State* state) const noexcept { delete state; }

DigestStream::DigestStream() : state_(new State) { XXH3_128bits_reset(&state_->xxh3); }
void DigestStream::add(std::string_view bytes) noexcept {
  XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size());
}
Digest DigestStream::digest() const noexcept { return canonical_digest(XXH3_128bits_digest(&state_->xxh3)); }

std::uint64_t hash64(std::string_view bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace kiln::base
