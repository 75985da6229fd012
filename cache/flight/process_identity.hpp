// The identity of a process as people see it: pid, PID namespace and host. A board outlives the process, and
// other containers read it. Also what boards and waiters share: their clocks, and the bytes of a key.
#pragma once

#include <cstdint>
#include <string>

#include "base/wire.hpp"
#include "kiln/digest.hpp"

namespace kiln::cache {

struct ProcessIdentity {
  std::int32_t pid = 0;             ///< as its own PID namespace knows it
  std::uint64_t pid_namespace = 0;  ///< inode of /proc/self/ns/pid
  std::string host;

  static ProcessIdentity self();
  /// Returns whether the pid belongs to this process's PID namespace, as the namespace's inode number tells.
  bool here() const noexcept;
  /// Returns "pid 4711 on node7", and says so when the pid belongs to another namespace.
  std::string who() const;
};

std::int64_t boot_us() noexcept;  ///< microseconds since the boot, sleep included
std::int64_t unix_ms() noexcept;

/// The most bytes of a host name or a subject that go into a slot; the rest is cut off.
inline constexpr std::size_t kSlotTextLimit = 1024;
void encode_key(base::Writer& out, const Key& key);
/// Throws base::Malformed.
Key decode_key(base::Reader& in);

}  // namespace kiln::cache
