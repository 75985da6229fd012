// [arch.*] and [[kernel]]: one text that stands for several manifests. Each of them is the tree with some of
// its tables replaced, so every rule and message of the grammar applies unchanged.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/arch.hpp"
#include "manifest/toml/tree.hpp"

namespace kiln::source {

/// The trees that a manifest with [arch.*] stands for. When [template] has no source or entry point of its
/// own, the first override is the base, and only the overrides' archs are allowed.
struct ArchTrees {
  TomlValue base;
  std::vector<std::pair<base::Arch, TomlValue>> variants;
  bool base_is_variant = false;  ///< [template] names no kernel: the base is the first variant
};
ArchTrees split_archs(TomlValue tree, const std::string& file);

/// Writes NAME.cu as the source of [template], unless an [arch.*] table names one, and NAME.reference.cu as the
/// source of [reference], where the manifest names none.
void add_default_sources(TomlValue& tree);
/// The trees that a manifest with [[kernel]] stands for, each with the entry point's name. The main
/// entry point is first.
std::vector<std::pair<std::string, TomlValue>> split_entries(TomlValue tree, const std::string& file);

}  // namespace kiln::source
