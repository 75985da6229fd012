// A manifest compiled before it is written: with as few measures as it takes, and its arguments compared with
// the image's.
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

/// Where the manifest lies, and what it says of its source.
struct ImportPlace {
  std::string directory;  ///< absolute; the manifest is NAME.toml in it
  std::string source;     ///< relative to it
  std::string origin;     ///< how people call the source
  std::string text;       ///< of a source that is not written yet; empty: it is a file
};

struct Proof {
  bool proved = false;
  std::shared_ptr<const runtime::StoredImage> image;  ///< of the proof
  /// Why it is not proved.
  Errc code = Errc::ok;
  std::string message;
  std::vector<std::string> diagnostics;  ///< the compiler's first errors
  std::vector<std::string> hints;        ///< what compile/advice/advice.hpp says of them
};

/// Tries manifests that are in memory only; `draft` is what the last one says: the smallest that works, or
/// the one that got farthest. Throws for a machine without a compiler.
Proof prove(runtime::Core& core, const ImportPlace& place, base::Arch arch, ImportDraft& draft);

/// "host_headers = \"shim\"": as the manifest says them.
std::vector<std::string> texts_of(const Measures& measures);
/// What may help against such errors, as sentences.
std::string advice_for(const Proof& proof);

}  // namespace kiln::cli
