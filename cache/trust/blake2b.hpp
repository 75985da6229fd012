// The only wrapper of BLAKE2b: over a text, or over pieces as they come.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>

#include "kiln/digest.hpp"

namespace kiln::trust {

class Blake2b {
 public:
  /// `digest_bytes` 16 to 64. Throws Error(internal) when libsodium cannot start.
  explicit Blake2b(std::size_t digest_bytes);
  Blake2b(Blake2b&&) noexcept;
  Blake2b& operator=(Blake2b&&) noexcept;
  ~Blake2b();
  void add(std::string_view bytes) noexcept;
  /// The digest of the bytes that were added so far; more may follow. REQUIRES: N is `digest_bytes`.
  template <std::size_t N>
  Bytes<N> digest() const noexcept {
    Bytes<N> out;
    so_far(out.bytes.data(), N);
    return out;
  }

 private:
  struct State;
  void so_far(unsigned char* out, std::size_t size) const noexcept;
  std::unique_ptr<State> state_;
};

template <std::size_t N>
Bytes<N> blake2b(std::string_view bytes) {
  Blake2b hash(N);
  hash.add(bytes);
  return hash.digest<N>();
}

}  // namespace kiln::trust
