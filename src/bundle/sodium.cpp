#include "bundle/sodium.hpp"

#include <sodium.h>

#include "kiln/error.hpp"

namespace kiln::bundle {

void need_sodium() {
  if (::sodium_init() < 0) throw Error(Errc::internal, "libsodium cannot start: no source of randomness");
}

}  // namespace kiln::bundle
