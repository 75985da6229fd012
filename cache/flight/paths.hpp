// The places of a store's flight lock: its paths, and what each of its bytes means. Those who take the lock
// and those who only look at it share this.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "kiln/digest.hpp"

namespace kiln::cache {

/// "DIRECTORY/kiln-1000-<identity>", to which ".flight" and ".board" are added.
std::string flight_stem(const std::string& shared_memory, uid_t owner, const std::string& identity);
/// When the directory was made, which goes into its boards' checksums; 0 where the filesystem does not tell.
std::uint64_t birth_of(const std::string& directory) noexcept;
/// Where a key's byte lies in the lock file, and in data.mdb. Below 2^62.
std::int64_t flight_offset(const Key& key);

/// In the lock file, behind the keys: a caller waits for a slot (held shared), and the slots
/// (cache/flight/compile_slots.hpp).
inline constexpr std::int64_t kSlotMark = std::int64_t{1} << 62;
inline constexpr std::int64_t kFirstSlot = kSlotMark + 1;

}  // namespace kiln::cache
