#include "tools/kiln/cli/catalog.hpp"

#include "library/work_lists.hpp"

namespace kiln::cli {

source::Catalog catalog_of(const std::vector<std::string>& directories) {
  return source::Catalog(directories, {}, library::work_lists());
}

}  // namespace kiln::cli
