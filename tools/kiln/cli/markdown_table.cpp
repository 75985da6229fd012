#include "tools/kiln/cli/markdown_table.hpp"

#include <algorithm>
#include <cctype>

namespace kiln::cli {
namespace {

/// A bar ends a table cell, even inside a code span, so it is escaped everywhere.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

}  // namespace

std::string prose(std::string_view text) {
  const auto in_word = [&](std::size_t i) {
    return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i]));
  };
  std::string out;
  bool in_code = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '`') in_code = !in_code;
    const bool inside_name = c == '_' && i > 0 && in_word(i - 1) && in_word(i + 1);
    if (!in_code && c == '<') {
      out += "&lt;";
      continue;
    }
    if (!in_code && !inside_name && (c == '*' || c == '_' || c == '[' || c == '\\')) out += '\\';
    out += c;
  }
  return out;
}

std::string code(std::string_view text) {
  // A span may hold backticks when it is fenced by more of them.
  const std::string fence = text.find('`') == text.npos ? "`" : "`` ";
  return fence + std::string(text) + std::string(fence.rbegin(), fence.rend());
}

std::string MarkdownTable::text() const {
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < titles_.size(); ++i) {
    if (std::any_of(rows_.begin(), rows_.end(), [&](const auto& row) { return !row[i].empty(); }))
      shown.push_back(i);
  }
  std::string out = "|", rule = "|";
  for (const std::size_t i : shown) out += ' ' + titles_[i] + " |", rule += "---|";
  out += '\n' + rule + '\n';
  for (const auto& row : rows_) {
    out += '|';
    for (const std::size_t i : shown) out += (row[i].empty() ? "" : " " + cell(row[i])) + " |";
    out += '\n';
  }
  return out;
}

}  // namespace kiln::cli
