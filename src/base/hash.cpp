#include "base/hash.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kiln::base {

Digest digest_of(std::string_view bytes) noexcept {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  Digest out;
  static_assert(sizeof canonical.digest == sizeof out.bytes);
  std::memcpy(out.bytes.data(), canonical.digest, sizeof canonical.digest);
  return out;
}

std::uint64_t hash64(std::string_view bytes) noexcept { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace kiln::base
