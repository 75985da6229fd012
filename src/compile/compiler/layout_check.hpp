// A manifest's arguments against those that the image was compiled with.
#pragma once

#include <string>

#include "compile/key/facts.hpp"
#include "instantiate/instantiate.hpp"

namespace kiln::compile {

/// Throws Error(manifest) that names `what`, the argument and both sizes, when count or sizes differ. A
/// struct without a size has whatever the image says.
void check_layout(const source::Manifest& manifest, const EntryFacts& facts, const std::string& what);

/// Of every entry point of `unit`; those that declare no arguments are launched raw, and are not looked at.
void check_layouts(const source::Instantiation& unit, const Facts& facts);

}  // namespace kiln::compile
