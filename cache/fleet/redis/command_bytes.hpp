// Commands as a server reads them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kiln::fleet {

/// More than any entry needs; a server that takes longer ones would be sent none by us.
inline constexpr std::size_t kLargestCommand = std::size_t{64} << 20;

/// False, and nothing is appended, beyond kLargestCommand or without a word. Throws std::bad_alloc.
bool append_command(std::string& out, const std::vector<std::string>& words);

}  // namespace kiln::fleet
