// Entries between this machine's stores and the fleet's tier.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cache/record/record.hpp"
#include "cache/store/store.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/fleet/tier.hpp"

namespace kiln::cli {

struct Pushed {
  std::uint64_t entries = 0, pushed = 0, present = 0, failed = 0, unreadable = 0;
  std::uint64_t removed = 0;  ///< went away here before they were read: evicted, or cleared
  std::uint64_t left = 0;     ///< not looked at: interrupted, or the tier is down
  FirstFault fault;           ///< `failed` are those that it kept from being looked at or written
  double seconds = 0;

  /// All that is still here is there.
  bool complete() const noexcept { return failed == 0 && unreadable == 0 && left == 0 && !fault; }
  /// The same, and nothing went away before it was read.
  bool covers_all() const noexcept { return complete() && removed == 0; }
};
/// What the tier does not have whole (signed by the tier's own signer, intact, with its row) is written to
/// it. REQUIRES: tier.can_write(). `record` gives an entry's record, or why it cannot be read.
Pushed push_entries(fleet::Tier& tier, const std::vector<Key>& keys,
                    const std::function<cache::Peeked<cache::Record>(const Key&)>& record, bool quiet);
Json json_of(const Pushed& pushed);
/// In a sentence, for people.
std::string text_of(const Pushed& pushed);

/// Whether the tier has each of them, verified.
std::vector<bool> covered_by(fleet::Tier& tier, const std::vector<std::pair<Key, std::string>>& texts,
                             FirstFault& fault);

/// Whether a record that the tier's signature vouches for can be taken: its parts agree (bundle/entry.hpp), and it
/// is of this version of kiln. Otherwise `why` says what is wrong.
bool is_usable(const cache::Record& record, std::string& why);

}  // namespace kiln::cli
