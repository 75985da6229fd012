// An image with what is known about it, and how a call came by it.
#pragma once

#include <memory>
#include <string>

#include "compile/key/facts.hpp"
#include "kiln/digest.hpp"
#include "kiln/kernel.hpp"

namespace kiln::runtime {

/// Immutable, shared.
struct StoredImage {
  Key key;
  compile::Facts facts;
  std::string bytes;
};

struct Obtained {
  std::shared_ptr<const StoredImage> image;
  Outcome outcome = Outcome::memory;
  std::string unpublishable;  ///< not empty: served but not published, and why
};

}  // namespace kiln::runtime
