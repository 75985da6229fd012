// Reads a source with the project's headers, as kiln's own scan of includes finds them.
#pragma once

#include "tools/kiln/import/declaration.hpp"
#include "tools/kiln/import/place.hpp"

namespace kiln::cli {

/// Throws Error(io) when the source cannot be read. A header that cannot be read is left out: the compile tells
/// what is wrong with it.
SourceTexts read_texts(const ImportAsked& asked);

}  // namespace kiln::cli
