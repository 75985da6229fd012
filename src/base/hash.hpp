// XXH3-128 digests. The key maker (compile/key) puts labels and lengths before fields; this file does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "kiln/digest.hpp"

namespace kiln::base {

Digest digest_of(std::string_view bytes) noexcept;
inline Digest digest_of(std::span<const std::byte> bytes) noexcept {
  return digest_of(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

/// The digest of bytes that come in pieces. It equals digest_of() of all of them.
class DigestStream {
 public:
  DigestStream();  ///< throws std::bad_alloc
  void add(std::string_view bytes) noexcept;
  Digest digest() const noexcept;

 private:
  struct State;
  struct Delete {
    void operator()(State*) const noexcept;
  };
  std::unique_ptr<State, Delete> state_;
};

/// XXH3-64, for checksums, hash tables and lock ranges.
std::uint64_t hash64(std::string_view bytes) noexcept;

}  // namespace kiln::base
