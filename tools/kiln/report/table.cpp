#include "tools/kiln/report/table.hpp"

#include <algorithm>
#include <cstdio>

#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/report/page.hpp"

namespace kiln::cli {
namespace {

std::string fixed(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

std::string html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Cell text_cell(const std::string& text) { return {html(text), {}}; }
Cell code_cell(const std::string& text) { return {"<code>" + html(text) + "</code>", {}}; }
Cell count_cell(std::uint64_t count) { return {std::to_string(count), std::to_string(count)}; }
Cell bytes_cell(std::uint64_t bytes) { return {human_bytes(bytes), std::to_string(bytes)}; }
Cell percent_cell(double share) { return {fixed("%.1f&nbsp;%%", share * 100), fixed("%.6f", share)}; }

Cell ms_cell(double ms, Recorded recorded) {
  if (recorded == Recorded::no) return {"<span class=\"quiet\">not recorded</span>", "-1"};
  return {human_ms(ms), fixed("%.4f", ms)};
}

Cell bar_cell(double share) {
  const double width = std::clamp(share, 0.0, 1.0) * 100;
  return {
      "<svg class=\"bar\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect "
      "width=\"" +
          fixed("%.2f", share > 0 ? std::max(width, 0.5) : 0) + "\" height=\"8\"/></svg>",
      fixed("%.6f", share)};
}

std::string table_html(const std::string& caption, const std::vector<HtmlColumn>& columns,
                       const std::vector<std::vector<Cell>>& rows) {
  std::string out = "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"" + html(caption) +
                    "\"><table><caption>" + html(caption) + "</caption><thead><tr>";
  const auto kind = [&](std::size_t i) { return columns[i].number ? " class=\"number\"" : ""; };
  for (std::size_t i = 0; i < columns.size(); ++i)
    out += std::string("<th scope=\"col\"") + kind(i) + '>' + html(columns[i].title) + "</th>";
  out += "</tr></thead><tbody>\n";
  for (const auto& row : rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += std::string("<td") + kind(i);
      if (!row[i].value.empty()) out += " data-v=\"" + row[i].value + '"';
      out += '>' + row[i].html + "</td>";
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

}  // namespace kiln::cli
