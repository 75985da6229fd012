// The paths of a store's flight lock, and the meaning of each of its bytes. The code that takes the lock and
// the code that only inspects it share this file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "kiln/digest.hpp"

namespace kiln::cache {

/// "DIRECTORY/kiln-1000-<identity>", to which ".flight" and ".board" are added.
std::string flight_stem(const std::string& shared_memory, uid_t owner, const std::string& identity);
/// The time at which the directory was made, in ns since 1970; 0 where the filesystem does not tell. It is
/// the salt of the checksums on its boards.
std::uint64_t birth_of(const std::string& directory) noexcept;
/// The offset of a key's byte in the lock file and in data.mdb; below 2^62.
std::int64_t flight_offset(const Key& key);

/// Bytes of the lock file after the keys: the mark of callers that wait for a slot (held shared),
/// then the slots (cache/flight/compile_slots.hpp).
inline constexpr std::int64_t kSlotMark = std::int64_t{1} << 62;
inline constexpr std::int64_t kFirstSlot = kSlotMark + 1;

}  // namespace kiln::cache
