// libsodium's start, and its small services: texts as it takes them, wiping memory and random bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kiln::trust {

/// Starts libsodium. Thread-safe; cheap after the first call. Throws Error(internal) when there is no source
/// of randomness.
void need_sodium();

/// The bytes of a text, as libsodium takes them.
inline const unsigned char* raw(std::string_view bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

/// Zeroes memory in a way that no compiler leaves out.
void wipe(void* memory, std::size_t size) noexcept;

/// 64 bits of the system's random numbers, which differ from process to process. Thread-safe.
std::uint64_t random_bits();

}  // namespace kiln::trust
