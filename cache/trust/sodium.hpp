// libsodium's start, and its small services: wiping memory and random bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kiln::trust {

/// Starts libsodium. Thread-safe; cheap after the first call. Throws Error(internal) when there is no source
/// of randomness.
void need_sodium();

/// Zeroes memory in a way that no compiler leaves out.
void wipe(void* memory, std::size_t size) noexcept;

/// 64 bits of the system's random numbers, which differ from process to process. Thread-safe.
std::uint64_t random_bits();

}  // namespace kiln::trust
