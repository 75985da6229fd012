// Line numbers of the parts of a manifest.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include "manifest/toml/tree.hpp"

namespace kiln::cli {

/// Finds the lines at which a manifest's parts stand.
class ManifestLines {
 public:
  ManifestLines(const source::TomlValue& tree, std::string file) : tree_(tree), file_(std::move(file)) {}
  /// "FILE:LINE" of the deepest part of `path` that exists, as in {"param", "T"}.
  std::string of(std::initializer_list<std::string_view> path) const;
  /// "FILE:LINE" of the [[arg]] with that name, also inside a [[kernel]].
  std::string argument(std::string_view name) const;
  /// "FILE:LINE" of the [[kernel]] with that name, or of the whole manifest when there is none.
  std::string entry(std::string_view name) const;

 private:
  std::string at(int line) const { return file_ + (line > 0 ? ':' + std::to_string(line) : ""); }
  const source::TomlValue& tree_;
  const std::string file_;
};

}  // namespace kiln::cli
