// Compiles a draft again and again, and adds what the compiler asks for, until the draft compiles or a round
// gets no further.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/arch.hpp"
#include "kiln/error.hpp"
#include "runtime/path/core.hpp"
#include "tools/kiln/import/draft.hpp"
#include "tools/kiln/import/place.hpp"

namespace kiln::cli {

struct Proof {
  bool proved = false;
  std::shared_ptr<const runtime::StoredImage> image;  ///< set when proved
  int rounds = 0;                                     ///< compiles
  /// Why the manifest does not compile: of the round that got furthest.
  Errc code = Errc::ok;
  std::string message;
  std::vector<std::string> diagnostics;  ///< the compiler's errors, each as one line
  std::vector<std::string> hints;        ///< the advice of compile/advice/advice.hpp
};

/// Called before each round with its number and what is new in it: "host_code = \"cut\"".
using RoundStarts = std::function<void(int round, const std::string& what)>;

/// Tries manifests in memory only. `draft` becomes the one that works, or the one that got furthest, with its
/// arguments. Throws when the machine has no compiler.
Proof prove(runtime::Core& core, const ImportPlace& place, base::Arch arch, ImportDraft& draft,
            const RoundStarts& starts);

}  // namespace kiln::cli
