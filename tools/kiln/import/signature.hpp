// One declaration, from its tokens to parameters, arguments and bounds.
#pragma once

#include "tools/kiln/import/source.hpp"

namespace kiln::cli {

/// Reads the declaration in [begin, end), which contains __global__ and ends before ';' or '{'. Returns false
/// when it declares no kernel that can be named, such as an explicit specialisation or instantiation.
bool read_declaration(const Tokens& tokens, std::size_t begin, std::size_t end, KernelDeclaration& out);

}  // namespace kiln::cli
