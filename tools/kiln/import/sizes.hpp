// Corrects a draft by facts of the compiled image.
#pragma once

#include <cstdint>

#include "compile/key/facts.hpp"
#include "tools/kiln/import/draft.hpp"

namespace kiln::cli {

/// Takes from the image the sizes of structs, arguments that a macro hid, and the required block and cluster.
void take_sizes(ImportDraft& draft, const compile::Facts& facts);
/// Bytes of an argument of this type; 0 for "struct", whose size only the image has.
std::uint32_t bytes_of(const std::string& type);

}  // namespace kiln::cli
