// The questions that a scan asks the file system, and their answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kiln::source {

/// One question to one search directory.
struct Asked {
  enum class What : std::uint8_t { folder, file };
  What what = What::file;
  std::size_t directory = 0;
  std::string name;    ///< relative
  bool there = false;  ///< the answer; files that exist come in the order of the closure's files
};

/// The questions of one scan, kept so that another process can ask them again.
class Questions {
 public:
  /// From now on, every question is kept.
  void keep() noexcept { kept_.emplace(); }
  void note(Asked::What what, std::size_t directory, const std::string& name, bool there) {
    if (kept_) kept_->push_back({what, directory, name, there});
  }
  /// Says that the scan depends on an answer which no kept question asks for.
  void depend_on_more() noexcept { complete_ = false; }
  /// Null when none were kept, or the scan depends on more than they ask.
  const std::vector<Asked>* kept() const noexcept { return kept_ && complete_ ? &*kept_ : nullptr; }

 private:
  std::optional<std::vector<Asked>> kept_;
  bool complete_ = true;
};

}  // namespace kiln::source
