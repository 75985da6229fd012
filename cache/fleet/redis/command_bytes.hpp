// Commands as a server reads them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kiln::fleet {

/// More than any entry needs. Longer commands are not sent, even to a server that would take them.
inline constexpr std::size_t kLargestCommand = std::size_t{64} << 20;

/// Appends a command. Returns false, and appends nothing, for more than kLargestCommand bytes or
/// no word. Throws std::bad_alloc.
bool append_command(std::string& out, const std::vector<std::string>& words);

}  // namespace kiln::fleet
