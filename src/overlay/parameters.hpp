// The parameters of a function, as far as text shows them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "overlay/outline.hpp"

namespace kiln::source {

/// The types of a function's parameters and its qualifiers, as they are written, without names and default values.
/// None for a template. `text` is the text of the declaration's outline.
std::optional<std::vector<std::string>> parameter_types(const Declaration& d, std::string_view text);

}  // namespace kiln::source
