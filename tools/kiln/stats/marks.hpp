// Notes of a store's lifetime counters, to see later what happened since.
//
// DIR/v1/marks/NAME (0600), version 1, text:
//   kiln-mark 1
//   taken SECONDS              unix time
//   values N N N ...           cache::kTallyValues of them, in the order of the tally
// Written beside and renamed. What else is there is no mark.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::cli {

struct Mark {
  std::string name;
  std::int64_t taken_s = 0;
  std::vector<std::uint64_t> values;
};

/// Throws Error(invalid_argument) unless it is 1 to 64 of [A-Za-z0-9._-] and does not begin with a dot.
void check_mark_name(const std::string& name);
/// Notes the counters of the store in `directory` now, over an older mark of this name. Throws Error(io).
Mark set_mark(const std::string& directory, const std::string& name);
/// Throws Error(invalid_argument) naming the marks there are, Error(io) for one that is damaged or cannot be
/// read.
Mark read_mark(const std::string& directory, const std::string& name);
/// Sorted.
std::vector<std::string> mark_names(const std::string& directory);

struct Since {
  std::vector<std::uint64_t> values;  ///< what was counted since
  bool reset = false;  ///< the counters began anew meanwhile, and `values` is what was counted since then
};
Since since(const Mark& mark, const std::vector<std::uint64_t>& now);

}  // namespace kiln::cli
