// Text that fits a width: wrapping, clipping, tables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::cli {

/// Number of columns that `text` takes on a terminal. Each code point counts as one.
std::size_t columns_of(std::string_view text) noexcept;
/// At most `width` columns of `text`; an ellipsis ends text that was cut.
std::string clipped(std::string_view text, std::size_t width);
/// Breaks `text` at spaces into lines of at most `width` columns. Longer words are cut. Width 0
/// gives one line.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);
/// Rows under a header. Columns marked flexible are wrapped when the rows would not fit the terminal.
class Table {
 public:
  enum class Fit { left, right, flexible };
  struct Column {
    std::string title;
    Fit fit = Fit::left;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// Prints the table on stdout.
  void print() const;

 private:
  std::vector<std::size_t> widths(std::size_t available) const;
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace kiln::cli
