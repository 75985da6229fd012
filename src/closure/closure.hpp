// The include closure of a translation unit: every file that may reach the compiler, with its digest. The
// names of the files do not depend on where they lie.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "closure/scan_cache.hpp"
#include "kiln/digest.hpp"

namespace kiln::source {

/// Absolute directories. A directory in both lists (same device and inode) counts as toolkit. Repeated and
/// missing directories are ignored.
struct SearchPath {
  /// The template's own directory first, then [compile] include_dirs, then the configured ones.
  std::vector<std::string> project;
  std::vector<std::string> toolkit;  ///< searched last
  std::vector<std::string> own{};    ///< the directories of `project` that come with kiln
  /// From [compile] replace: every include of the first name becomes an include of <file>.
  std::vector<std::pair<std::string, std::string>> replace{};
};

/// A search directory with the name that the compiler sees: ".k0" (project) or ".t0" (toolkit). Names are
/// numbered by first use in the scan. So neither prefix, nor order, nor unrelated directories reach the
/// image through __FILE__.
struct Root {
  std::string name, path;
  bool toolkit = false;
  bool own = false;  ///< comes with kiln
};

struct ClosureFile {
  std::string path;      ///< absolute
  std::string symbolic;  ///< the compiler's spelling: ".k0/kiln/dtype.cuh"
  Digest digest;
  base::FileStamp stamp;
  bool toolkit = false;      ///< lies in a toolkit directory
  bool via_toolkit = false;  ///< reached only through toolkit files
  /// The stamp was older than 2 s when the file was hashed, so an equal stamp proves equal content.
  bool settled = false;
};

/// One include directive of a project file whose target was found outside the toolkit.
struct ProjectEdge {
  std::string includer;  ///< symbolic; "" for the template's source itself
  std::string spelling;  ///< "\"x.h\"" or "<x.h>"
  std::size_t file = 0;  ///< index into files
};

struct Closure {
  /// Search directories in search order: those in use, or all of them when `computed` or `toolkit_computed`.
  std::vector<Root> roots;
  std::vector<ClosureFile> files;    ///< in scan order, without the source itself
  std::vector<ProjectEdge> edges;    ///< in scan order
  std::vector<std::string> missing;  ///< spellings in project files for which no file was found
  /// A project file has a computed include: the files that the compiler read must be
  /// compared after the compile.
  bool computed = false;
  /// A toolkit file has a computed include. Its target is in `files` when a #define of a scanned file
  /// spells it out. A name made of pieces (Thrust's `<__THRUST_HOST_SYSTEM_ROOT/...>`) is only found by
  /// comparing after the compile.
  bool toolkit_computed = false;
  /// Project files (symbolic names; "" is the source) that ask __has_include for a name that no
  /// scan of the text can see.
  std::vector<std::string> computed_probes;
  /// The digest of some toolkit header, or the whole scan, was taken from a memo.
  bool memoised = false;
  /// Files (symbolic names; "" is the source) that mention __DATE__, __TIME__ or __TIMESTAMP__.
  std::vector<std::string> date_time;

  /// Path of the first file that has changed since it was hashed; nothing when there is none. A file with
  /// another stamp counts as changed. A file whose stamp was younger than 2 s is also hashed again.
  std::optional<std::string> changed() const;
};

/// Scans a source. `extra` are spellings that count as quoted includes of the source ([compile]
/// extra_includes, preinclude). A quoted name is searched in the includer's directory first, except for the
/// source, which has none. Then it is searched like a bracketed name: project, toolkit. With Trust::memo the
/// trace of another process's scan may give the result. Throws Error(source) for an absolute include, for an
/// include that leaves its search directory through "..", and for an unreadable file.
Closure scan_closure(std::string_view source, const std::vector<std::string>& extra, const SearchPath& search,
                     ScanCache& cache, Trust trust = Trust::content);

}  // namespace kiln::source
