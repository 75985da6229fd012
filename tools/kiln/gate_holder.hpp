// Who keeps others out of a store: the kernel tells no owner of an open-file-description lock but in /proc.
#pragma once

#include <string>

namespace kiln::cli {

/// "pid 4711 (engine), pid 4712 (python3)": the processes whose descriptors hold the gate of writers of this
/// file. Empty when this user may not see them, or they are in another PID namespace.
std::string writers_at_gate(const std::string& file);

}  // namespace kiln::cli
