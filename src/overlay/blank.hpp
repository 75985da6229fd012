// Takes code out of a text. The size of the text, its lines and its directives stay.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "overlay/outline.hpp"

namespace kiln::source {

/// Replaces all characters by blanks, apart from line ends and directives.
void blank(std::string& text, std::size_t begin, std::size_t end);
/// Puts `end`, which is ";" or "{}", in the place of a function's body, and takes __host__ away, which NVRTC refuses. Where the
/// body begins with a line end, the two braces stand at the ends of the body. REQUIRES: `d` has a body in `text` that is no
/// shorter than `end`.
void blank_body(std::string& text, const Declaration& d, std::string_view end);

}  // namespace kiln::source
