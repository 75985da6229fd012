// A snapshot of kiln top as lines of text.
#pragma once

#include "tools/kiln/top/snapshot.hpp"

namespace kiln::cli {

/// Lines cut to the terminal's width. At most `rows` lines, with a count of missing ones; 0 means no limit.
std::vector<std::string> frame_of(const TopSnapshot& snapshot, const Terminal& terminal, std::size_t rows);

}  // namespace kiln::cli
