#include "cache/trust/blake2b.hpp"

#include <sodium.h>

#include "cache/trust/sodium.hpp"

namespace kiln::trust {

struct Blake2b::State {
  crypto_generichash_blake2b_state hash;
};

Blake2b::Blake2b(std::size_t digest_bytes) : state_(new State) {
  need_sodium();
  crypto_generichash_blake2b_init(&state_->hash, nullptr, 0, digest_bytes);
}

Blake2b::Blake2b(Blake2b&&) noexcept = default;
Blake2b& Blake2b::operator=(Blake2b&&) noexcept = default;
Blake2b::~Blake2b() = default;

void Blake2b::add(std::string_view bytes) noexcept {
  crypto_generichash_blake2b_update(&state_->hash, raw(bytes), bytes.size());
}

void Blake2b::so_far(unsigned char* out, std::size_t size) const noexcept {
  crypto_generichash_blake2b_state copy = state_->hash;
  crypto_generichash_blake2b_final(&copy, out, size);
}

}  // namespace kiln::trust
