// The values of one key of a [[prewarm]] row: a scalar, a range, or a list of these.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "manifest/toml/table_reader.hpp"

namespace kiln::source {

inline constexpr std::size_t kMaxPlanned = 1'000'000;  ///< specialisations of one plan

/// The values of one key of a [[prewarm]] row as texts. Fails for any other value than a string, integer,
/// bool, range or list of these.
std::vector<std::string> prewarm_texts(const TableReader& row, std::string_view key);
/// The canonical names of the row's `arch`, without repeats.
std::vector<std::string> prewarm_archs(const TableReader& row);

}  // namespace kiln::source
