// The identity of a process for people: pid, PID namespace and host. A board outlives the process and is read
// in other containers.
#pragma once

#include <cstdint>
#include <string>

#include "base/wire.hpp"
#include "kiln/digest.hpp"

namespace kiln::cache {

struct Asker {
  std::int32_t pid = 0;             ///< as its own PID namespace knows it
  std::uint64_t pid_namespace = 0;  ///< inode of /proc/self/ns/pid
  std::string host;

  static Asker self();
  /// Whether its pid means this process's namespace on this boot of this host.
  bool here() const noexcept;
  /// "pid 4711 on node7", and whether that is a pid of another namespace.
  std::string who() const;
};

std::int64_t boot_us() noexcept;  ///< since the boot, sleep included
std::int64_t unix_ms() noexcept;

/// At most so many bytes of a text go into a slot file.
inline constexpr std::size_t kSlotTextLimit = 1024;
void encode_key(base::Writer& out, const Key& key);
/// Throws base::Malformed.
Key decode_key(base::Reader& in);

}  // namespace kiln::cache
