// Selects entries for `kiln bundle export` and `kiln remote push`: by a plan, or from the store
// and its layers.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/store/bundle_stores.hpp"

namespace kiln::cli {

struct SelectionFlags {
  std::vector<std::string> plans, templates;
  std::string device;  ///< the device whose tuned choices resolve a plan's rows
  bool all = false;
  bool all_jits = false;  ///< the blobs of other JIT compilers, too
};

/// Adds PLAN.toml..., -t, --all, --all-jits and --device, the options of every command that selects entries.
void add_selection_options(Command sub, SelectionFlags& flags);

struct Selection {
  std::vector<Key> keys;             ///< ascending, without duplicates
  std::vector<std::string> missing;  ///< labels of a plan's rows that no store has
};
/// With a plan, --arch applies to rows that name no arch; without a plan, --arch selects entries. `removed`
/// holds keys that an earlier selection found and that were removed since. A plan's entries with such a key
/// count as missing.
/// Throws Error: invalid_argument when the flags select nothing or contradict each other.
Selection select_entries(Context& context, const SelectionFlags& flags, BundleStores& stores,
                         const std::set<Key>& removed = {});

}  // namespace kiln::cli
