// The kind of filesystem under a directory: its name, and whether it is on the network or in memory.
#pragma once

#include <cstdint>
#include <string>

namespace kiln::cache {

struct Filesystem {
  std::string name;  ///< "ext4"; "type 0x1234" when it is not known
  bool network = false;
  bool volatile_ = false;  ///< in memory only
  std::uint64_t free_bytes = 0;
};
/// Looks at the filesystem of `directory`, or of the nearest directory above it that exists.
Filesystem filesystem_of(const std::string& directory);

}  // namespace kiln::cache
