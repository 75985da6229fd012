#include "closure/closure.hpp"

#include <algorithm>
#include <set>

#include "base/hash.hpp"
#include "base/quote.hpp"
#include "closure/include_search.hpp"
#include "closure/macro_names.hpp"
#include "closure/trace.hpp"
#include "kiln/error.hpp"

namespace kiln::source {
namespace {

class ClosureScan {
 public:
  explicit ClosureScan(IncludeSearch& search) : search_(search) {}

  Closure run(std::string_view source, const std::vector<std::string>& extra) {
    ScanResult scan = scan_includes(source);
    for (const std::string& name : extra) scan.directives.push_back({name, true, false});
    macros_.add(scan);
    visit(scan, kNoFile);
    // Project files are followed first. So a file counts as reached through the toolkit only when no
    // project file leads to it.
    follow([](const ClosureFile& file) { return !file.toolkit; });
    for (const Unresolved& include : unresolved_) {
      const std::string spelling = spelling_of(include.directive);
      const bool listed = std::find(out_.missing.begin(), out_.missing.end(), spelling) != out_.missing.end();
      if (include.tried.empty() && !listed) out_.missing.push_back(spelling);
    }
    search_.leave_project();
    follow([](const ClosureFile&) { return true; });
    refuse_absolute_operands();
    out_.roots = search_.roots(out_.computed || out_.toolkit_computed);
    out_.memoised = search_.memoised();
    out_.files = std::move(search_.files());
    return std::move(out_);
  }

 private:
  struct Unresolved {
    IncludeDirective directive;
    std::size_t includer;
    std::set<std::string> tried;  ///< existing names that macros made of it
  };

  /// Visits every file that `wanted` accepts, and the files that it includes, until no new file appears.
  template <class Wanted>
  void follow(Wanted&& wanted) {
    std::size_t known = 0;
    do {
      known = search_.files().size();
      visited_.resize(known);
      for (std::size_t i = 0; i < visited_.size(); ++i) {
        if (visited_[i] || !wanted(search_.files()[i])) continue;
        visited_[i] = true;
        visit(search_.scan(i), i);
        visited_.resize(search_.files().size());
      }
      put_together();
    } while (search_.files().size() > known);
  }

  void visit(const ScanResult& scan, std::size_t includer) {
    const std::string who = includer == kNoFile ? "" : search_.files()[includer].symbolic;
    if (scan.date_time) out_.date_time.push_back(who);
    if (scan.computed_probe && search_.in_project()) out_.computed_probes.push_back(who);
    operands_.insert(scan.operands.begin(), scan.operands.end());
    // Absolute names that toolkit files define or include are not our concern.
    if (search_.in_project()) {
      for (const auto& [macro, spelling] : scan.absolutes) absolutes_.push_back({macro, spelling, includer});
    }
    if (scan.computed) (search_.in_project() ? out_.computed : out_.toolkit_computed) = true;
    for (const IncludeDirective& include : scan.directives) {
      if (include.name[0] == '/') {
        if (!search_.in_project()) continue;
        throw Error(Errc::source, search_.name_of(includer) + " includes " +
                                      base::quote(spelling_of(include)) +
                                      ": an absolute include would tie the cache to this machine; add its "
                                      "directory to include_dirs");
      }
      if (!follow_edge(include, includer, include)) unresolved_.push_back({include, includer, {}});
    }
  }

  /// False when `include` names no file. `written` is the directive as the includer has it.
  bool follow_edge(const IncludeDirective& include, std::size_t includer, const IncludeDirective& written) {
    const auto& found = search_.find(include, includer);
    for (const std::size_t file : found) {
      if (!search_.in_project() || search_.files()[file].toolkit) continue;
      out_.edges.push_back(
          {includer == kNoFile ? "" : search_.files()[includer].symbolic, spelling_of(written), file});
    }
    return !found.empty();
  }

  /// Refuses a project file's macro for an absolute name when some file includes that macro. The file may
  /// belong to the toolkit.
  void refuse_absolute_operands() {
    if (absolutes_.empty()) return;
    std::set<std::string> named = operands_;
    for (; macros_of_ < search_.files().size(); ++macros_of_) macros_.add(search_.scan(macros_of_));
    for (const std::string& operand : operands_) {
      for (std::string& name : macros_.expand(operand)) named.insert(std::move(name));
    }
    for (const Absolute& a : absolutes_) {
      if (!named.contains(a.macro)) continue;
      throw Error(Errc::source,
                  search_.name_of(a.file) + " defines " + base::quote(a.macro) + " as " +
                      base::quote(a.spelling, 4096) +
                      " for an include: an absolute include would tie the cache to this "
                      "machine; add its directory to include_dirs and define the name from there");
    }
  }

  /// Names that exist nowhere may be made of macros, but only where includes are computed. This function
  /// follows the names that they may become.
  void put_together() {
    if (!out_.computed && !out_.toolkit_computed) return;
    for (; macros_of_ < search_.files().size(); ++macros_of_) macros_.add(search_.scan(macros_of_));
    for (Unresolved& include : unresolved_) {
      for (const std::string& name : macros_.expand(include.directive.name)) {
        if (name[0] == '/' || include.tried.contains(name)) continue;
        const IncludeDirective expanded{name, include.directive.quoted, include.directive.next};
        if (follow_edge(expanded, include.includer, include.directive)) include.tried.insert(name);
      }
    }
  }

  struct Absolute {
    std::string macro, spelling;
    std::size_t file;
  };

  IncludeSearch& search_;
  Closure out_;
  std::set<std::string> operands_;
  std::vector<Absolute> absolutes_;
  std::vector<bool> visited_;
  std::vector<Unresolved> unresolved_;
  HeaderMacros macros_;
  std::size_t macros_of_ = 0;  ///< files whose definitions are known
};

}  // namespace

std::optional<std::string> Closure::changed() const {
  for (const ClosureFile& file : files) {
    // A new stamp is a change even when the content is equal again, because it may have been
    // different in between.
    if (base::FileStamp::of(file.path) != file.stamp) return file.path;
    if (file.settled) continue;
    const auto content = base::read_file(file.path);
    if (!content || base::digest_of(content->bytes) != file.digest) return file.path;
  }
  return std::nullopt;
}

Closure scan_closure(std::string_view source, const std::vector<std::string>& extra, const SearchPath& path,
                     ScanCache& cache, Trust trust) {
  IncludeSearch search(path, cache, trust);
  if (trust == Trust::content || !cache.remembers()) return ClosureScan(search).run(source, extra);
  const Digest key = trace_key(source, extra, search);
  if (const auto trace = cache.trace(key)) {
    if (auto known = replay(*trace, search)) return std::move(*known);
  }
  search.questions().keep();
  Closure out = ClosureScan(search).run(source, extra);
  if (const std::vector<Asked>* asked = search.questions().kept()) {
    if (auto trace = encode_trace(out, *asked, search)) cache.keep_trace(key, std::move(*trace));
  }
  return out;
}

}  // namespace kiln::source
