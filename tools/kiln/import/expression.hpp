// Default values and bounds of a source, as expressions of a manifest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/kiln/import/draft.hpp"

namespace kiln::cli {

/// Makes an identifier of any text: "ns::Mode<4>" -> "ns_Mode_4".
std::string identifier_of(const std::string& text);
/// The tokens as an expression of manifests over the parameters in `known`; empty when they are
/// no such expression.
std::string expression_of(const Tokens& tokens, const std::vector<ImportParameter>& known);
/// The value of such an expression when it reads no parameter.
std::optional<std::int64_t> constant_of(const std::string& text);

}  // namespace kiln::cli
