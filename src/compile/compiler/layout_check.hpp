// Compares a manifest's arguments with the arguments that the image was compiled with.
#pragma once

#include <string>
#include <vector>

#include "compile/key/facts.hpp"
#include "instantiate/instantiate.hpp"

namespace kiln::compile {

/// Throws Error(manifest) when the number of arguments or a size differs. The message names `what`, the
/// argument and both sizes. A struct without a declared size takes its size from the image. `passed`: what the kernel
/// gets.
void check_layout(const source::Manifest& manifest, const std::vector<source::PassedArgument>& passed,
                  const EntryFacts& facts, const std::string& what);

/// Checks every entry point of `unit` that declares arguments. An entry point without declared
/// arguments is launched raw.
void check_layouts(const source::Instantiation& unit, const Facts& facts);

}  // namespace kiln::compile
