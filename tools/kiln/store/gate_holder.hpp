// Finds the holder of a lock. The kernel shows the owner of an open-file-description lock in /proc only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kiln::cli {

/// For each offset of a file: the processes whose descriptors hold the write lock that begins there, as in
/// "pid 4711 (engine), pid 4712 (python3)". An offset is left out when this user may not see the holder, or
/// when the holder is in another PID namespace.
std::map<std::int64_t, std::string> lock_holders(const std::string& file,
                                                 const std::vector<std::int64_t>& offsets);

/// The holders of the writers' gate; empty when none can be seen.
std::string writers_at_gate(const std::string& file);

}  // namespace kiln::cli
