// One declaration: from its tokens to parameters, arguments and bounds.
#pragma once

#include "tools/kiln/import/source.hpp"

namespace kiln::cli {

/// The declaration in [begin, end), which holds __global__ and ends before ';' or '{'. False when it is none
/// of a kernel that can be named: an explicit specialisation or instantiation, or something else.
bool read_declaration(const Tokens& tokens, std::size_t begin, std::size_t end, KernelDeclaration& out);

}  // namespace kiln::cli
