// [arch.*] and [[kernel]]: one text that stands for several manifests. Each is the tree with some of its
// tables put in the place of others, so that every rule and every message of the grammar holds for it as it
// is.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/arch.hpp"
#include "manifest/toml/tree.hpp"

namespace kiln::source {

/// The trees that a manifest with [arch.*] stands for. The first is the base; where [template] leaves the
/// source or the entry point to the overrides, it is the first of these, and its archs are theirs.
struct ArchTrees {
  TomlValue base;
  std::vector<std::pair<base::Arch, TomlValue>> variants;
  bool base_is_variant = false;  ///< [template] names no kernel: the base is the first variant
};
ArchTrees split_archs(TomlValue tree, const std::string& file);
/// The trees that a manifest with [[kernel]] stands for: the main entry point first.
std::vector<std::pair<std::string, TomlValue>> split_entries(TomlValue tree, const std::string& file);

}  // namespace kiln::source
