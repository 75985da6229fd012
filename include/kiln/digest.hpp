// Content digests and cache keys.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace kiln {
inline namespace v1 {

/// A value of `N` bytes, which is printed as lower-case hex digits.
template <std::size_t N>
struct Bytes {
  std::array<std::uint8_t, N> bytes{};

  std::string hex() const {
    static constexpr char digits[] = "0123456789abcdef";
    std::string out(2 * N, '0');
    for (std::size_t i = 0; i < N; ++i) {
      out[2 * i] = digits[bytes[i] >> 4];
      out[2 * i + 1] = digits[bytes[i] & 15];
    }
    return out;
  }
  /// Reads exactly 2N lower-case hex digits. Returns nothing for any other text.
  static std::optional<Bytes> from_hex(std::string_view text) {
    if (text.size() != 2 * N) return std::nullopt;
    Bytes out;
    for (std::size_t i = 0; i < 2 * N; ++i) {
      const char c = text[i];
      const int nibble = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
      if (nibble < 0) return std::nullopt;
      out.bytes[i / 2] = static_cast<std::uint8_t>(out.bytes[i / 2] << 4 | nibble);
    }
    return out;
  }
  friend bool operator==(const Bytes& a, const Bytes& b) noexcept { return a.bytes == b.bytes; }
  friend bool operator!=(const Bytes& a, const Bytes& b) noexcept { return a.bytes != b.bytes; }
  friend bool operator<(const Bytes& a, const Bytes& b) noexcept { return a.bytes < b.bytes; }
};

/// An XXH3-128 hash in canonical (big-endian) byte order.
using Digest = Bytes<16>;

/// The identity of an image, in two halves: the specialisation and the toolchain that compiled it.
struct Key {
  Digest specialisation, toolchain;

  std::string hex() const { return specialisation.hex() + toolchain.hex(); }
  static std::optional<Key> from_hex(std::string_view text) {
    if (text.size() != 64) return std::nullopt;
    const auto a = Digest::from_hex(text.substr(0, 32)), b = Digest::from_hex(text.substr(32));
    if (!a || !b) return std::nullopt;
    return Key{*a, *b};
  }
  friend bool operator==(const Key& a, const Key& b) noexcept {
    return a.specialisation == b.specialisation && a.toolchain == b.toolchain;
  }
  friend bool operator!=(const Key& a, const Key& b) noexcept { return !(a == b); }
  friend bool operator<(const Key& a, const Key& b) noexcept {
    return a.specialisation != b.specialisation ? a.specialisation < b.specialisation
                                                : a.toolchain < b.toolchain;
  }
};

}  // namespace v1
}  // namespace kiln
