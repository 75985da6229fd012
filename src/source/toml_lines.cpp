#include "source/toml_lines.hpp"

#include <algorithm>

namespace kiln::source {
namespace {

bool is_key(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}
bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_plain(char c) { return c >= ' ' && c <= '~'; }
bool is_text(char c) { return is_plain(c) && c != '"' && c != '\\'; }

template <class Accepts>
std::size_t skip(std::string_view line, std::size_t at, Accepts&& accepts) {
  while (at < line.size() && accepts(line[at])) ++at;
  return at;
}

/// From `at` on nothing but blanks, or blanks and a comment that cannot be wrong.
bool is_tail(std::string_view line, std::size_t at) {
  at = skip(line, at, is_blank);
  if (at < line.size() && line[at] == '#')
    at = skip(line, at, [](char c) { return is_plain(c) || c == '\t'; });
  return at == line.size();
}

/// Where the string of `key = "text"` begins and ends, without its quotes; nothing (0, 0) for any other line.
std::pair<std::size_t, std::size_t> string_in(std::string_view line) {
  const std::size_t key = skip(line, 0, is_blank), key_end = skip(line, key, is_key);
  std::size_t at = skip(line, key_end, is_blank);
  if (key == key_end || at == line.size() || line[at] != '=') return {};
  at = skip(line, at + 1, is_blank);
  if (at == line.size() || line[at] != '"') return {};
  const std::size_t begin = at + 1;
  const std::size_t end = skip(line, begin, is_text);
  if (end == begin || end == line.size() || line[end] != '"' || !is_tail(line, end + 1)) return {};
  return {begin, end};
}

}  // namespace

ShortToml shorten_toml(std::string_view toml) {
  ShortToml out;
  // A string of several lines could hold lines that look like others.
  if (toml.find("\"\"\"") != std::string_view::npos || toml.find("'''") != std::string_view::npos) {
    out.text = toml;
    return out;
  }
  out.text.reserve(toml.size());
  out.strings.reserve(static_cast<std::size_t>(std::count(toml.begin(), toml.end(), '\n')) + 2);
  out.strings.emplace_back();
  while (!toml.empty()) {
    const std::size_t newline = toml.find('\n');
    std::string_view line = toml.substr(0, newline);
    toml.remove_prefix(newline == std::string_view::npos ? toml.size() : newline + 1);
    out.strings.emplace_back();
    const bool carriage = newline != std::string_view::npos && line.ends_with('\r');
    if (carriage) line.remove_suffix(1);
    if (const auto [begin, end] = string_in(line); end > 0) {
      out.strings.back() = line.substr(begin, end - begin);
      out.text.append(line.substr(0, begin)).append(1, '"');
    } else if (!is_tail(line, 0)) {
      out.text.append(line);
    }
    if (carriage) out.text += '\r';
    if (newline != std::string_view::npos) out.text += '\n';
  }
  return out;
}

}  // namespace kiln::source
