// A kernel's arguments: types and sizes from the image, names from the declaration.
#pragma once

#include <optional>
#include <string>

#include "compile/key/facts.hpp"
#include "kiln/dtype.hpp"
#include "tools/kiln/import/draft.hpp"

namespace kiln::cli {

/// Takes the arguments' types and sizes from the image, and their names from the declaration. Without an
/// image, all comes from the declaration.
void draft_arguments(ImportDraft& draft, const compile::Facts* image);

/// The C++ name of a symbol; empty when the symbol has none.
std::string demangled(const std::string& symbol);
/// The dtype that a C++ type names: "float const", "__half", "unsigned char".
std::optional<Dtype> dtype_of(std::string type);

}  // namespace kiln::cli
