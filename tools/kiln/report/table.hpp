// A table of the page: columns can be sorted, and cells are escaped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::cli {

/// Escapes text for HTML text and attribute values.
std::string html(std::string_view text);

struct Cell {
  std::string html;   ///< escaped
  std::string value;  ///< sort value; empty: the cell's text
};
Cell text_cell(const std::string& text);
/// A cell in a monospaced font, for text such as parameters.
Cell code_cell(const std::string& text);
Cell count_cell(std::uint64_t count);
Cell bytes_cell(std::uint64_t bytes);
/// A time; "-" when none is recorded.
enum class Recorded { yes, no };
Cell ms_cell(double ms, Recorded recorded = Recorded::yes);
Cell percent_cell(double share);
/// A bar that fills `share` of the column, beside the number in the row.
Cell bar_cell(double share);

struct HtmlColumn {
  std::string title;
  bool number = false;
};
/// A table in a box that scrolls sideways on a narrow screen; `caption` names the table.
std::string table_html(const std::string& caption, const std::vector<HtmlColumn>& columns,
                       const std::vector<std::vector<Cell>>& rows);

}  // namespace kiln::cli
