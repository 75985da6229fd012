// A store's lifetime counters (runtime/state/lifetime.hpp) as stats shows them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

/// cache::kTallyValues numbers, in the order of the tally; zeros when nothing was counted in `directory`.
std::vector<std::uint64_t> read_lifetime(const std::string& directory);

/// By runtime::lifetime_counters; groups (hits, misses, puts) are objects, times are in milliseconds.
Json lifetime_json(const std::vector<std::uint64_t>& values);

/// Under a heading; of what `lifetime_json` made.
void print_lifetime(const std::string& heading, const Json& lifetime);

}  // namespace kiln::cli
