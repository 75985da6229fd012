// Fixed-size byte arrays (kiln::Bytes: digests, keys, signatures) as text views, and back.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

#include "kiln/digest.hpp"

namespace kiln::base {

/// The view is valid as long as `bytes` is.
template <std::size_t N>
std::string_view view(const Bytes<N>& bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.bytes.data()), N};
}

/// The first N bytes of `from`. REQUIRES: `from` has at least N bytes.
template <std::size_t N>
Bytes<N> bytes_of(std::string_view from) noexcept {
  Bytes<N> out;
  std::memcpy(out.bytes.data(), from.data(), N);
  return out;
}

}  // namespace kiln::base
