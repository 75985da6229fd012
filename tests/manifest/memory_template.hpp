// Templates without files.
#pragma once

#include <memory>
#include <string>

#include "manifest/catalog.hpp"

namespace kiln::source {

/// A template with this manifest and a source of one line. Reads no file.
inline std::shared_ptr<const Template> in_memory(const std::string& manifest) {
  Catalog catalog({});
  return catalog.add({manifest, "the source", "the reference"});
}

}  // namespace kiln::source
