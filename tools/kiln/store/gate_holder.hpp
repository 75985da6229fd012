// Who holds a lock: the kernel tells no owner of an open-file-description lock but in /proc.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kiln::cli {

/// "pid 4711 (engine), pid 4712 (python3)": the processes whose descriptors hold the lock that begins at each
/// of these offsets of a file for writing. An offset is left out when this user may not see its holder, or it
/// is in another PID namespace.
std::map<std::int64_t, std::string> lock_holders(const std::string& file,
                                                 const std::vector<std::int64_t>& offsets);

/// Of the gate of writers; empty when it is not seen.
std::string writers_at_gate(const std::string& file);

}  // namespace kiln::cli
