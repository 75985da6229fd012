// Templates that no file holds.
#pragma once

#include <memory>
#include <string>

#include "manifest/catalog.hpp"

namespace kiln::source {

/// Reads no file: a template whose manifest is given and whose source is one line.
inline std::shared_ptr<const Template> in_memory(const std::string& manifest) {
  Catalog catalog({});
  return catalog.add({manifest, "the source", "the reference"});
}

}  // namespace kiln::source
