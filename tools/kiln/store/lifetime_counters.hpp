// A store's lifetime counters (runtime/state/lifetime.hpp) as `stats` shows them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

/// Reads cache::kTallyValues numbers in the tally's order; zeros when nothing was counted in `directory`.
std::vector<std::uint64_t> read_lifetime(const std::string& directory);

/// Names the values by runtime::lifetime_counters. Groups (hits, misses, puts) are objects; times
/// are in milliseconds.
Json lifetime_json(const std::vector<std::uint64_t>& values);

/// Prints the result of `lifetime_json` under a heading.
void print_lifetime(const std::string& heading, const Json& lifetime);

}  // namespace kiln::cli
