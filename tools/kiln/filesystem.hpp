// What a directory lies on.
#pragma once

#include <cstdint>
#include <string>

namespace kiln::cli {

struct Filesystem {
  std::string name;  ///< "ext4"; "type 0x1234" when it is not known
  bool network = false;
  bool volatile_ = false;  ///< in memory only
  std::uint64_t free_bytes = 0;
};
/// `directory` exists.
Filesystem filesystem_of(const std::string& directory);

}  // namespace kiln::cli
