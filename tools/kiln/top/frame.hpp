// A snapshot of kiln top as lines of text.
#pragma once

#include "tools/kiln/top/snapshot.hpp"

namespace kiln::cli {

/// Lines cut to the terminal's width; at most `rows` of them, and then what is left out is counted. 0: all.
std::vector<std::string> frame_of(const TopSnapshot& snapshot, const Terminal& terminal, std::size_t rows);

}  // namespace kiln::cli
