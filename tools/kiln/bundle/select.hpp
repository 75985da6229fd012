// What `kiln bundle export` and `kiln remote push` take: the keys of a plan, or of what the store and its
// layers hold.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tools/kiln/bundle/stores.hpp"
#include "tools/kiln/cli/context.hpp"

namespace kiln::cli {

struct SelectionFlags {
  std::vector<std::string> plans, templates;
  std::string device;  ///< whose tuned choices a plan's rows take
  bool all = false;
};

/// PLAN.toml..., -t, --all and --device, as every command that selects entries has them.
void add_selection_options(Command sub, SelectionFlags& flags);

struct Selection {
  std::vector<Key> keys;             ///< ascending, each once
  std::vector<std::string> missing;  ///< what a plan asks for and is in no store
};
/// --arch is of the plan's rows that name none; without a plan it chooses entries. A plan's entries of the
/// keys in `removed` are missing: an earlier selection found them, and they went away. Throws Error:
/// invalid_argument when the flags choose nothing or contradict each other.
Selection select_entries(Context& context, const SelectionFlags& flags, BundleStores& stores,
                         const std::set<Key>& removed = {});

}  // namespace kiln::cli
