// Where the parts of a manifest stand.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include "manifest/toml/tree.hpp"

namespace kiln::cli {

/// Where a manifest's parts stand.
class ManifestLines {
 public:
  ManifestLines(const source::TomlValue& tree, std::string file) : tree_(tree), file_(std::move(file)) {}
  /// "FILE:LINE" of the deepest of `path` that is there: {"param", "T"}.
  std::string of(std::initializer_list<std::string_view> path) const;
  /// Of the [[arg]] with that name, in a [[kernel]], too.
  std::string argument(std::string_view name) const;
  /// Of the [[kernel]] with that name; of the whole when there is none.
  std::string entry(std::string_view name) const;

 private:
  std::string at(int line) const { return file_ + (line > 0 ? ':' + std::to_string(line) : ""); }
  const source::TomlValue& tree_;
  const std::string file_;
};

}  // namespace kiln::cli
