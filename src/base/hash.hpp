// XXH3-128 digests. Fields are labelled and length-prefixed by the key maker (compile/key), not here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kiln/digest.hpp"

namespace kiln::base {

Digest digest_of(std::string_view bytes) noexcept;
inline Digest digest_of(std::span<const std::byte> bytes) noexcept {
  return digest_of(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

/// XXH3-64, for checksums, tables and lock ranges.
std::uint64_t hash64(std::string_view bytes) noexcept;

}  // namespace kiln::base
