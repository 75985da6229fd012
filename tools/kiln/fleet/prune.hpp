// kiln remote prune: removes what no node can use.
#pragma once

#include <cstdint>
#include <string>

#include "tools/kiln/cli/command.hpp"
#include "tools/kiln/store/tier/tier.hpp"

namespace kiln::cli {

struct PruneChoice {
  std::string toolchain;  ///< also removes entries whose toolchain digest begins with this
  bool all = false;       ///< removes everything that kiln wrote
  bool dry_run = false;   ///< counts, and removes nothing
};

struct Pruned {
  std::uint64_t scanned = 0, kept = 0;
  std::uint64_t unusable = 0;  ///< entries that do not verify, and names with no rows in them
  std::uint64_t rows = 0;      ///< rows without an entry, or that do not verify
  std::uint64_t others = 0;    ///< values of another version of kiln
  std::uint64_t chosen = 0;    ///< removed by the choice's toolchain or `all`
  std::uint64_t removed = 0;
  FirstFault fault;
};

/// Stops early when the user interrupts.
Pruned prune_tier(fleet::Tier& tier, const PruneChoice& choice);

void add_remote_prune(Command remote, Context& context);

}  // namespace kiln::cli
