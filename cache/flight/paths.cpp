#include "cache/flight/paths.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/hash.hpp"

namespace kiln::cache {

std::string flight_stem(const std::string& shared_memory, uid_t owner, const std::string& identity) {
  return shared_memory + "/kiln-" + std::to_string(owner) + '-' + identity;
}

std::uint64_t birth_of(const std::string& directory) noexcept {
  struct statx st {};
  if (directory.empty() || ::statx(AT_FDCWD, directory.c_str(), 0, STATX_BTIME, &st) != 0) return 0;
  if ((st.stx_mask & STATX_BTIME) == 0) return 0;
  return static_cast<std::uint64_t>(st.stx_btime.tv_sec) * 1'000'000'000 + st.stx_btime.tv_nsec;
}

std::int64_t flight_offset(const Key& key) {
  std::string bytes(reinterpret_cast<const char*>(key.specialisation.bytes.data()), 16);
  bytes.append(reinterpret_cast<const char*>(key.toolchain.bytes.data()), 16);
  return static_cast<std::int64_t>(base::hash64(bytes) >> 2);
}

}  // namespace kiln::cache
