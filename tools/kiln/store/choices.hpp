// Tuned choices as inspection shows them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compile/key/tuned_choice.hpp"
#include "tools/kiln/store/entries.hpp"

namespace kiln::cli {

struct StoredChoice {
  Key key;
  compile::TunedChoice choice;
  std::string directory;  ///< the first store that has it
  std::uint64_t stored_bytes = 0, last_used_s = 0, uses = 0;
};

/// Reads the tuned choices that `name` matches from all stores. A key that several stores have is read from
/// the first of them. Sorted by template, arch, device and parameters. Throws Error, Damaged.
std::vector<StoredChoice> read_choices(const SearchedStores& searched, const KeyName& name = KeyName());

Json json_of(const StoredChoice& stored);
void print_choice(const StoredChoice& stored);
/// "rows=64: 3.10 us, 0.91 of the default"
std::string text_of(const compile::TunedChoice::Timing& timing);

}  // namespace kiln::cli
