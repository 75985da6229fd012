// Templates as the command reads them.
#pragma once

#include <string>
#include <vector>

#include "manifest/catalog.hpp"

namespace kiln::cli {

/// Opens the template directories. Manifests may name every kind of work list that the library has.
source::Catalog catalog_of(const std::vector<std::string>& directories);

}  // namespace kiln::cli
