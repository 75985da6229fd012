#include "cache/trust/sodium.hpp"

#include <sodium.h>

#include "kiln/error.hpp"

namespace kiln::trust {

void need_sodium() {
  if (::sodium_init() < 0)
    throw Error(Errc::internal, "libsodium cannot start: it finds no source of randomness");
}

void wipe(void* memory, std::size_t size) noexcept { ::sodium_memzero(memory, size); }

std::uint64_t random_bits() {
  std::uint64_t out;
  ::randombytes_buf(&out, sizeof out);
  return out;
}

}  // namespace kiln::trust
