// Transfers entries between this machine's stores and the fleet's tier.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache/record/record.hpp"
#include "cache/store/store.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/store/tier/tier.hpp"
#include "tools/kiln/store/whole_blob.hpp"

namespace kiln::cli {

struct Pushed {
  std::uint64_t entries = 0, pushed = 0, present = 0, failed = 0, unreadable = 0;
  std::uint64_t removed = 0;  ///< removed here before they were read: evicted, or cleared
  std::uint64_t left = 0;     ///< not processed: interrupted, or the tier is down
  FirstFault fault;           ///< the first reason why entries are in `failed`
  double seconds = 0;

  /// Adds what a later push did. The first fault stays.
  Pushed& operator+=(const Pushed& later);

  /// True when the tier has every entry that is still here.
  bool complete() const noexcept { return failed == 0 && unreadable == 0 && left == 0 && !fault; }
  /// True when additionally no entry was removed here before it was read.
  bool covers_all() const noexcept { return complete() && removed == 0; }
};
/// Writes to the tier each entry that it does not have whole: signed by the tier's own signer, intact, with
/// its row. A blob whose bytes differ from the tier's is written again, and a large one in parts as the runtime
/// sends them (runtime::kTierPart). REQUIRES: tier.can_write().
Pushed push_entries(fleet::Tier& tier, const std::vector<Key>& keys, const RecordOf& record, bool quiet);
Json json_of(const Pushed& pushed);
/// One sentence for people. `remedy` says how the entries that are left are written.
std::string text_of(const Pushed& pushed, const std::string& remedy = "run the same command again");

/// For each key and key text: true when the tier has the entry, verified.
std::vector<bool> covered_by(fleet::Tier& tier, const std::vector<std::pair<Key, std::string>>& texts,
                             FirstFault& fault);

/// True when a record with a valid signature can be used: its parts agree (bundled_entry.hpp), and it is of
/// this version of kiln. Otherwise `why` receives the reason.
bool is_usable(const cache::Record& record, std::string& why);

}  // namespace kiln::cli
