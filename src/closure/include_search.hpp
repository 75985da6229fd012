// The files of one closure: found along the search path, named after its directories.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "closure/closure.hpp"
#include "closure/trace.hpp"

namespace kiln::source {

inline constexpr std::size_t kNoFile = static_cast<std::size_t>(-1);

class IncludeSearch {
 public:
  struct Directory {
    std::string path;
    bool toolkit = false;
    std::uint64_t device = 0, inode = 0;
    std::string name;                                    ///< empty until used
    std::unordered_map<std::string, std::size_t> known;  ///< relative name -> file, or kNoFile
    std::unordered_map<std::string, bool> folders;       ///< first folder of a relative name -> is there
  };

  IncludeSearch(const SearchPath& search, ScanCache& cache, Trust trust);

  /// Files that the directive names: one, or none, or for #include_next every one that some directory has.
  /// New ones are added to files(). `includer` is kNoFile for the template's source. The result is valid
  /// until the next call. Throws Error(source) as scan_closure does.
  const std::vector<std::size_t>& find(const IncludeDirective& include, std::size_t includer);
  /// Files added from now on are reached only through the toolkit, and may leave their search directory.
  void leave_project() noexcept { in_project_ = false; }
  bool in_project() const noexcept { return in_project_; }

  /// A digest was taken from the memo.
  bool memoised() const noexcept { return memoised_; }

  std::vector<ClosureFile>& files() noexcept { return files_; }
  const ScanResult& scan(std::size_t file) const noexcept { return *scans_[file]; }
  const std::vector<std::pair<std::string, std::string>>& replacements() const noexcept { return replace_; }
  /// In search order.
  const std::vector<Directory>& directories() const noexcept { return directories_; }
  /// From now on, every question to the file system is kept.
  void keep_questions() noexcept { asking_.emplace(); }
  /// Those kept; null when none were, or one was of a kind that is not asked again.
  const std::vector<Asked>* asked() const noexcept { return asking_ && !unrepeatable_ ? &*asking_ : nullptr; }
  /// A file as the scan would see it now. Throws Error(source) as find() does.
  std::optional<ScanCache::Scanned> read_again(std::size_t directory, const std::string& relative) const {
    const Directory& in = directories_[directory];
    return read(in.path + '/' + relative, in, relative, kNoFile);
  }
  /// Directories in search order: those used, or all, numbering the rest.
  std::vector<Root> roots(bool all);
  /// For messages: the file's symbolic name, or "the template's source".
  std::string name_of(std::size_t file) const;

 private:
  struct Location {
    std::size_t directory;
    std::string relative;
  };
  const IncludeDirective* replacement(const IncludeDirective& include);
  static std::vector<Directory> search_order(const SearchPath& search);
  std::size_t look(std::size_t directory, const std::string& spelling, std::size_t includer);
  std::optional<ScanCache::Scanned> read(const std::string& path, const Directory& in,
                                         const std::string& spelling, std::size_t includer) const;
  std::string through_dots(const Directory& in, const std::string& spelling, std::string relative,
                           std::size_t includer) const;
  void name_root(Directory& root);
  bool may_hold(std::size_t directory, const std::string& relative);
  void note(Asked::What what, std::size_t directory, const std::string& name, bool there) {
    if (asking_) asking_->push_back({what, directory, name, there});
  }

  const std::vector<std::pair<std::string, std::string>> replace_;
  std::vector<Directory> directories_;
  ScanCache& cache_;
  Trust trust_;
  std::vector<ClosureFile> files_;
  std::vector<std::shared_ptr<const ScanResult>> scans_;  ///< of each file
  std::vector<Location> locations_;                       ///< of each file
  std::unordered_map<std::string, std::size_t> by_name_;  ///< what a search through all directories found
  std::optional<std::vector<Asked>> asking_;
  bool unrepeatable_ = false;
  std::vector<std::size_t> found_;  ///< of the last find()
  IncludeDirective replaced_;       ///< of the last replacement()
  std::size_t project_roots_ = 0, toolkit_roots_ = 0;
  bool in_project_ = true, memoised_ = false;
};

/// As written: "\"x.h\"" or "<x.h>".
std::string spelling_of(const IncludeDirective& include);

}  // namespace kiln::source
