// One table of the page: columns that can be sorted, cells that are escaped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::cli {

/// For text and attribute values.
std::string html(std::string_view text);

struct Cell {
  std::string html;   ///< escaped
  std::string value;  ///< to sort by; empty: the text
};
Cell text_cell(const std::string& text);
/// Monospaced, such as parameters.
Cell code_cell(const std::string& text);
Cell count_cell(std::uint64_t count);
Cell bytes_cell(std::uint64_t bytes);
/// "-" for a time that is not recorded.
enum class Recorded { yes, no };
Cell ms_cell(double ms, Recorded recorded = Recorded::yes);
Cell percent_cell(double share);
/// A bar of `share` of the column, beside the number in the row.
Cell bar_cell(double share);

struct HtmlColumn {
  std::string title;
  bool number = false;
};
/// In a box that scrolls sideways where the screen is narrow; `caption` names it.
std::string table_html(const std::string& caption, const std::vector<HtmlColumn>& columns,
                       const std::vector<std::vector<Cell>>& rows);

}  // namespace kiln::cli
