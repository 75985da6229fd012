// What the compiled image knows better than the text of a declaration.
#pragma once

#include <cstdint>

#include "compile/key/facts.hpp"
#include "tools/kiln/import/draft.hpp"

namespace kiln::cli {

/// Sizes of structs, arguments that a macro hid, the block and cluster that the image demands.
void take_sizes(ImportDraft& draft, const compile::Facts& facts);
/// Bytes of an argument of that type; 0 for "struct", whose size is the image's.
std::uint32_t bytes_of(const std::string& type);

}  // namespace kiln::cli
