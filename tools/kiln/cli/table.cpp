// Text that fits a width: wrapping, clipping, tables.
#include "tools/kiln/cli/table.hpp"

#include <algorithm>
#include <numeric>

#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kGap = 2, kLeast = 16;  // columns between two columns; least width of a flexible column

bool starts_code_point(char c) noexcept { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

/// Bytes of the first `columns` code points.
std::size_t bytes_of(std::string_view text, std::size_t columns) noexcept {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if (starts_code_point(text[at]) && columns-- == 0) break;
  }
  return at;
}

}  // namespace

std::size_t columns_of(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_code_point));
}

std::string clipped(std::string_view text, std::size_t width) {
  if (columns_of(text) <= width) return std::string(text);
  return width == 0 ? "" : std::string(text.substr(0, bytes_of(text, width - 1))) + "…";
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  if (width == 0 || columns_of(text) <= width) return lines[0] = text, lines;
  std::size_t used = 0;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (used > 0 && used + 1 + columns_of(word) > width) lines.emplace_back(), used = 0;
    while (columns_of(word) > width) {
      const std::size_t cut = bytes_of(word, width);
      lines.back() = word.substr(0, cut), lines.emplace_back();
      word.remove_prefix(cut);
    }
    if (used > 0) lines.back() += ' ', ++used;
    lines.back() += word, used += columns_of(word);
  }
  return lines;
}

std::vector<std::size_t> Table::widths(std::size_t available) const {
  std::vector<std::size_t> out;
  for (const Column& column : columns_) out.push_back(columns_of(column.title));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) out[i] = std::max(out[i], columns_of(row[i]));
  }
  if (available == 0) return out;
  // The widest flexible column is narrowed first.
  std::size_t total = std::accumulate(out.begin(), out.end(), kGap * (out.size() - 1));
  for (; total > available; --total) {
    std::size_t widest = out.size();
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (columns_[i].fit == Fit::flexible && out[i] > kLeast &&
          (widest == out.size() || out[i] > out[widest]))
        widest = i;
    }
    if (widest == out.size()) break;
    --out[widest];
  }
  return out;
}

void Table::print() const {
  const Terminal terminal = standard_output();
  const std::vector<std::size_t> width = widths(terminal.width);
  std::string out, line;
  const auto emit = [&](const std::vector<std::string>& row, Style style) {
    // Wrapped text of flexible columns that are too narrow. Other cells have one line and are not copied.
    std::vector<std::vector<std::string>> cells(row.size());
    std::size_t height = 1;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (columns_[i].fit != Fit::flexible || !terminal.width || columns_of(row[i]) <= width[i]) continue;
      cells[i] = wrapped(row[i], width[i]);
      height = std::max(height, cells[i].size());
    }
    for (std::size_t n = 0; n < height; ++n) {
      line.clear();
      for (std::size_t i = 0; i < row.size(); ++i) {
        std::string_view cell;
        if (!cells[i].empty())
          cell = n < cells[i].size() ? cells[i][n] : std::string_view();
        else if (n == 0)
          cell = row[i];
        const std::size_t pad = width[i] - std::min(width[i], columns_of(cell));
        const bool right = columns_[i].fit == Fit::right;
        if (i > 0) line.append(kGap, ' ');
        if (right) line.append(pad, ' ');
        line += cell;
        if (!right) line.append(pad, ' ');
      }
      line.erase(line.find_last_not_of(' ') + 1);
      if (style == Style::plain)
        out.append(line).append(1, '\n');
      else
        out += paint(line, style, terminal) + '\n';
    }
  };
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  emit(titles, Style::bold);
  for (const auto& row : rows_) emit(row, Style::plain);
  cli::print(out);
}

}  // namespace kiln::cli
