// A command's man page in roff, with the man(7) macros.
#pragma once

#include <string>

#include "tools/kiln/cli/command_tree.hpp"

namespace kiln::cli {

/// A page of section 1. It has no date, so that the same source makes the same bytes.
std::string man_page(const CommandPage& page, const CommandPage& root);

}  // namespace kiln::cli
