// A command's man page: roff of the man(7) macros.
#pragma once

#include <string>

#include "tools/kiln/cli/command_tree.hpp"

namespace kiln::cli {

/// Section 1. Without a date, so that the same source makes the same bytes.
std::string man_page(const CommandPage& page, const CommandPage& root);

}  // namespace kiln::cli
