// An image with its facts, and the way by which a call got it.
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
  std::string unpublishable;  ///< not empty: the reason why it was served but not published
};

}  // namespace kiln::runtime
