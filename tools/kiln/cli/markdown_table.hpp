// The little of Markdown that pages need: text that stays what it is, code, tables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::cli {

/// Sentences of a manifest: what Markdown would take for markup is escaped, `code` stays code.
std::string prose(std::string_view text);
/// A code span.
std::string code(std::string_view text);

/// Columns that are empty in all rows are left out.
class MarkdownTable {
 public:
  explicit MarkdownTable(std::vector<std::string> titles) : titles_(std::move(titles)) {}
  /// As many cells as there are titles, of prose and code.
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::string> titles_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace kiln::cli
