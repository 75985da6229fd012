// Finds the files of one closure along the search path, and names them after its directories.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "closure/closure.hpp"
#include "closure/questions.hpp"
#include "closure/scan_cache.hpp"
#include "closure/search_directories.hpp"

namespace kiln::source {

inline constexpr std::size_t kNoFile = static_cast<std::size_t>(-1);

/// Finds the file of each include directive of one scan, and keeps every file that it found.
class IncludeSearch {
 public:
  IncludeSearch(const SearchPath& search, ScanCache& cache, Trust trust);

  /// The files that the directive names: one file or none; for #include_next, the file of every directory
  /// that has one. New files are added to files(). `includer` is kNoFile for the template's source. The
  /// result is valid until the next call. Throws Error(source) as scan_closure does.
  const std::vector<std::size_t>& find(const IncludeDirective& include, std::size_t includer);
  /// Files added from now on are reached only through the toolkit, and may leave their search directory.
  void leave_project() noexcept { in_project_ = false; }
  bool in_project() const noexcept { return in_project_; }

  /// True when a digest was taken from the memo.
  bool memoised() const noexcept { return memoised_; }

  std::vector<ClosureFile>& files() noexcept { return files_; }
  const ScanResult& scan(std::size_t file) const noexcept { return *origins_[file].scan; }
  const std::vector<std::pair<std::string, std::string>>& replacements() const noexcept { return replace_; }
  const std::vector<SearchDirectory>& directories() const noexcept { return directories_.list(); }
  Questions& questions() noexcept { return questions_; }
  /// Reads a file as the scan would see it now. Throws Error(source) as find() does.
  std::optional<ScanCache::Scanned> read_again(std::size_t directory, const std::string& relative) const {
    const SearchDirectory& in = directories()[directory];
    return read(in.path + '/' + relative, in, relative, kNoFile);
  }
  /// Directories in search order: only used ones, or all, which numbers the others, too.
  std::vector<Root> roots(bool all) { return directories_.roots(all); }
  /// The file's symbolic name for messages, or "the template's source".
  std::string name_of(std::size_t file) const;

 private:
  struct Origin {
    std::size_t directory;
    std::string relative;
    std::shared_ptr<const ScanResult> scan;
  };
  const IncludeDirective* replacement(const IncludeDirective& include);
  std::size_t look(std::size_t directory, const std::string& spelling, std::size_t includer);
  std::optional<ScanCache::Scanned> read(const std::string& path, const SearchDirectory& in,
                                         const std::string& spelling, std::size_t includer) const;
  std::string through_dots(const SearchDirectory& in, const std::string& spelling, std::string relative,
                           std::size_t includer) const;

  const std::vector<std::pair<std::string, std::string>> replace_;
  SearchDirectories directories_;
  ScanCache& cache_;
  Trust trust_;
  std::vector<ClosureFile> files_;
  std::vector<Origin> origins_;                           ///< of each file
  std::unordered_map<std::string, std::size_t> by_name_;  ///< results of searches through all directories
  Questions questions_;
  std::vector<std::size_t> found_;  ///< result of the last find()
  IncludeDirective replaced_;       ///< result of the last replacement()
  bool in_project_ = true, memoised_ = false;
};

/// The name as written: "\"x.h\"" or "<x.h>".
std::string spelling_of(const IncludeDirective& include);

}  // namespace kiln::source
