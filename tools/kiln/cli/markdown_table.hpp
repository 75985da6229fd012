// The few Markdown constructs that pages need: escaped text, code spans, tables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::cli {

/// Escapes what Markdown would take for markup in a manifest's sentences. Text in `backticks` stays
/// a code span.
std::string prose(std::string_view text);
/// A code span.
std::string code(std::string_view text);

/// A table. Columns that are empty in all rows are left out.
class MarkdownTable {
 public:
  explicit MarkdownTable(std::vector<std::string> titles) : titles_(std::move(titles)) {}
  /// Adds a row of Markdown cells. REQUIRES: as many cells as there are titles.
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::string> titles_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace kiln::cli
