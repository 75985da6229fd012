// Marks: stored copies of a store's lifetime counters, from which a later command computes what
// was counted since.
//
// DIR/v1/marks/NAME (0600), version 1, text:
//   kiln-mark 1
//   taken SECONDS              unix time
//   values N N N ...           cache::kTallyValues numbers, in the order of the tally
// A mark is written beside its place and renamed. Files with other names or contents are no marks.
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

/// Throws Error(invalid_argument) unless `name` has 1 to 64 characters of [A-Za-z0-9._-] and does not begin
/// with a dot.
void check_mark_name(const std::string& name);
/// Stores the current counters of the store in `directory`, and replaces a mark of this
/// name. Throws Error(io).
Mark set_mark(const std::string& directory, const std::string& name);
/// Throws Error(invalid_argument), which names the existing marks, and Error(io) for a mark that is damaged
/// or cannot be read.
Mark read_mark(const std::string& directory, const std::string& name);
/// Names of the marks, sorted.
std::vector<std::string> mark_names(const std::string& directory);

struct Since {
  std::vector<std::uint64_t> values;  ///< counted since the mark
  bool reset = false;                 ///< the counters restarted meanwhile, and `values` counts from there
};
Since since(const Mark& mark, const std::vector<std::uint64_t>& now);

}  // namespace kiln::cli
