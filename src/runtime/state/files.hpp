// The files that an instantiation consists of, as found a moment ago, and the key that they make.
#pragma once

#include <string>

#include "base/lazy.hpp"
#include "closure/closure.hpp"
#include "compile/key/key.hpp"
#include "instantiate/instantiate.hpp"
#include "runtime/config/config.hpp"
#include "toolchain/locate.hpp"

namespace kiln::runtime {

struct KeyedFiles {
  Digest source;  ///< digest of the template's own text, which is no file of the closure
  source::Closure closure;
  compile::MadeKey made;
};

/// The path of this user's memo of toolkit headers. It lies in memory and is gone after a reboot, because it
/// names inodes and mounts.
std::string default_memo_file();

/// Thread-safe.
class Files {
 public:
  /// `memo_file` remembers toolkit headers (closure/scan_memo.hpp).
  Files(const Config& config, const std::string& memo_file) : config_(config), scans_(memo_file) {}

  /// The toolkit, which is searched for at the first call.
  const toolchain::Toolkit& toolkit();
  /// Scans the include closure and makes the key. With Trust::memo, the memo of other processes about toolkit
  /// headers is believed. A memo may decide a hit, but never what is compiled. Throws Error(source).
  KeyedFiles read(const source::Instantiation& unit, source::Trust trust);

 private:
  source::SearchPath search_path(const source::Instantiation& unit);
  std::string own_headers(const std::string& folder, const std::string& key) const;

  const Config& config_;
  base::Lazy<toolchain::Toolkit> toolkit_;
  source::ScanCache scans_;
};

}  // namespace kiln::runtime
