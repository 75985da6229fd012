// Output of `kiln tune`: searches and choices.
#pragma once

#include "tools/kiln/store/choices.hpp"
#include "tools/kiln/tune/search.hpp"

namespace kiln::cli {

/// A search and the result of storing its choice.
struct TunedRow {
  TuneResult result;
  std::string arch, device, directory;  ///< directory: where the choice was stored; empty: not stored
};

void print_row(const std::string& template_name, const TunedRow& row, bool dry);
Json json_of(const std::string& template_name, const TunedRow& row, bool dry);
void print_choices(const std::vector<StoredChoice>& choices, const std::string& directory);

}  // namespace kiln::cli
