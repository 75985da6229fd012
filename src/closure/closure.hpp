// The include closure of a translation unit: every file that may reach the compiler, hashed, under names that
// do not depend on where it lies.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "closure/scan_cache.hpp"
#include "kiln/digest.hpp"

namespace kiln::source {

/// Absolute directories. A directory that is also a toolkit one (same device and inode) counts as toolkit;
/// repeats and directories that do not exist are dropped.
struct SearchPath {
  /// The template's own directory first, then [compile] include_dirs, then the configured ones.
  std::vector<std::string> project;
  std::vector<std::string> toolkit;  ///< searched last
  /// [compile] replace: an include of that name, wherever it stands, is one of <file>.
  std::vector<std::pair<std::string, std::string>> replace{};
};

/// A search directory under the name that the compiler sees: ".k0" (project) or ".t0" (toolkit). Numbered by
/// first use in the scan, so that neither prefix nor order nor unrelated directories reach the image through
/// __FILE__.
struct Root {
  std::string name, path;
  bool toolkit = false;
};

struct ClosureFile {
  std::string path;      ///< absolute
  std::string symbolic;  ///< ".k0/kiln/dtype.cuh": how the compiler spells it
  Digest digest;
  base::FileStamp stamp;
  bool toolkit = false;      ///< lies in a toolkit directory
  bool via_toolkit = false;  ///< reached only through toolkit files
  /// The stamp was older than 2 s when the file was hashed: an equal one proves equal content.
  bool settled = false;
};

/// One include directive of a project file whose target was found outside the toolkit.
struct ProjectEdge {
  std::string includer;  ///< symbolic; "" for the template's source itself
  std::string spelling;  ///< "\"x.h\"" or "<x.h>"
  std::size_t file = 0;  ///< index into files
};

struct Closure {
  /// In search order; only those used, or all when `computed` or `toolkit_computed`.
  std::vector<Root> roots;
  std::vector<ClosureFile> files;    ///< in scan order, the source itself not included
  std::vector<ProjectEdge> edges;    ///< in scan order
  std::vector<std::string> missing;  ///< spellings in project files that were found nowhere
  /// A project file has a computed include: what is read must be compared after the compile.
  bool computed = false;
  /// A toolkit file has one. Its target is in `files` where a #define of some scanned file spells it out; a
  /// name put together from pieces (Thrust's `<__THRUST_HOST_SYSTEM_ROOT/...>`) is seen only by comparing.
  bool toolkit_computed = false;
  /// Project files (symbolic; "" is the source) that ask __has_include for what no scan of text can see.
  std::vector<std::string> computed_probes;
  /// Some toolkit header's digest, or all of the scan, was taken from a memo.
  bool memoised = false;
  /// Files (symbolic; "" is the source) that mention __DATE__ and the like.
  std::vector<std::string> date_time;

  /// Path of the first file whose content is no longer what was hashed: stamps are compared, and files whose
  /// stamp differs or was younger than 2 s are hashed again. Nothing when all are as they were.
  std::optional<std::string> changed() const;
};

/// `extra` are spellings that count as quoted includes of the source ([compile] extra_includes, preinclude).
/// Quoted names are searched in the includer's directory first (the source itself has none), then as
/// bracketed ones: project, toolkit. Trust::memo may answer with the trace of another process's scan. Throws
/// Error(source): an absolute include, one that leaves its search directory through "..", an unreadable file.
Closure scan_closure(std::string_view source, const std::vector<std::string>& extra, const SearchPath& search,
                     ScanCache& cache, Trust trust = Trust::content);

}  // namespace kiln::source
