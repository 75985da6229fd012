// Compiles a manifest before it is written. Finds the fewest measures it needs, and compares its arguments
// with the image's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/arch.hpp"
#include "kiln/error.hpp"
#include "runtime/path/core.hpp"
#include "tools/kiln/import/draft.hpp"
#include "tools/kiln/import/manifest.hpp"

namespace kiln::cli {

/// Where the manifest lies, and how it names its source.
struct ImportPlace {
  std::string directory;  ///< absolute; the manifest is NAME.toml in it
  std::string source;     ///< relative to `directory`
  std::string origin;     ///< name of the source in messages
  std::string text;       ///< text of a source that is not written yet; empty: the source is a file
};

struct Proof {
  bool proved = false;
  std::shared_ptr<const runtime::StoredImage> image;  ///< set when proved
  /// Why the manifest is not proved.
  Errc code = Errc::ok;
  std::string message;
  std::vector<std::string> diagnostics;  ///< the compiler's first errors
  std::vector<std::string> hints;        ///< the advice of compile/advice/advice.hpp
};

/// Tries manifests in memory only. `draft` becomes the last one tried: the smallest that works, or else the
/// one that got farthest. Throws when the machine has no compiler.
Proof prove(runtime::Core& core, const ImportPlace& place, base::Arch arch, ImportDraft& draft);

/// The manifest lines of the measures, such as "host_headers = \"shim\"".
std::vector<std::string> texts_of(const Measures& measures);
/// Advice about the errors, as sentences.
std::string advice_for(const Proof& proof);

}  // namespace kiln::cli
