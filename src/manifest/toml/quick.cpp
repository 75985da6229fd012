#include "manifest/toml/quick.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace kiln::source {
namespace {

using Kind = TomlValue::Kind;

constexpr int kMaxDepth = 16;
/// Most tables have at most this many members. Growing step by step would move each value several times.
constexpr std::size_t kFew = 8;
/// Numbers of this many digits cannot overflow 64 bits.
constexpr std::size_t kMaxInteger = 18, kMaxNumber = 40;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_key(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '-';
}
bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_plain(char c) { return c >= ' ' && c <= '~'; }
/// By character: true when it stands for itself in a string. This is a table, because strings
/// are most of a manifest.
constexpr auto kText = [] {
  std::array<bool, 256> out{};
  for (int c = ' '; c <= '~'; ++c) out[static_cast<std::size_t>(c)] = c != '"' && c != '\\';
  return out;
}();
bool is_text(char c) { return kText[static_cast<unsigned char>(c)]; }
bool is_comment(char c) { return is_plain(c) || c == '\t'; }

TomlValue* member(TomlValue& table, std::string_view key) {
  for (auto& [name, value] : table.members)
    if (name == key) return &value;
  return nullptr;
}

/// Every function returns false for text that this reader does not handle.
class QuickToml {
 public:
  explicit QuickToml(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  std::optional<TomlValue> read() {
    root_.line = 1;
    while (at_ != end_)
      if (!line()) return std::nullopt;
    return std::move(root_);
  }

 private:
  template <class Accepts>
  std::string_view run(Accepts&& accepts) {
    const char* const begin = at_;
    while (at_ != end_ && accepts(*at_)) ++at_;
    return {begin, static_cast<std::size_t>(at_ - begin)};
  }
  bool take(char wanted) {
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }
  bool next_is(char wanted) const { return at_ != end_ && *at_ == wanted; }

  bool line() {
    run(is_blank);
    if (next_is('[')) return header() && line_end();
    if (at_ != end_ && is_key(*at_) && !pair(*table_, 0)) return false;
    return line_end();
  }

  bool line_end() {
    run(is_blank);
    if (take('#')) run(is_comment);
    if (at_ == end_) return true;
    if (next_is('\r') && at_ + 1 != end_ && at_[1] == '\n') ++at_;
    ++line_;
    return take('\n');
  }

  /// [a.b] or [[a.b]]. A table that already exists is left to toml++, which knows when that is an error.
  bool header() {
    take('[');
    const bool is_item = take('[');
    header_lines_.push_back(line_);
    TomlValue* at = &root_;
    std::string_view key;
    do {
      if (!key.empty() && !(at = inside(*at, key))) return false;
      run(is_blank);
      key = run(is_key);
      run(is_blank);
      if (key.empty()) return false;
    } while (take('.'));
    table_ = is_item ? item(*at, key) : member(*at, key) ? nullptr : &add(*at, key);
    return table_ && take(']') && (!is_item || take(']'));
  }

  TomlValue& add(TomlValue& table, std::string_view key) {
    if (table.members.empty()) table.members.reserve(kFew);
    TomlValue& out = table.members.emplace_back(key, TomlValue()).second;
    out.line = line_;
    return out;
  }

  /// True for a value that a header made: only such a value may be extended by another header. Headers and
  /// pairs are told apart by their lines.
  bool is_of_header(const TomlValue& value) const {
    return std::binary_search(header_lines_.begin(), header_lines_.end(), value.line);
  }

  TomlValue* inside(TomlValue& table, std::string_view key) {
    TomlValue* known = member(table, key);
    if (!known) return &add(table, key);
    if (!is_of_header(*known)) return nullptr;
    return known->kind == Kind::array ? &known->items.back() : known;
  }

  TomlValue* item(TomlValue& table, std::string_view key) {
    TomlValue* array = member(table, key);
    if (!array) {
      array = &add(table, key);
      array->kind = Kind::array;
    }
    if (array->kind != Kind::array || !is_of_header(*array)) return nullptr;
    if (array->items.empty()) array->items.reserve(kFew);
    TomlValue& out = array->items.emplace_back();
    out.line = line_;
    return &out;
  }

  bool pair(TomlValue& table, int depth) {
    const std::string_view key = run(is_key);
    run(is_blank);
    if (key.empty() || !take('=') || member(table, key)) return false;
    run(is_blank);
    return value(add(table, key), depth);
  }

  bool value(TomlValue& out, int depth) {
    out.line = line_;
    if (at_ == end_ || depth > kMaxDepth) return false;
    if (take('"')) return string(out);
    if (take('[')) return array(out, depth);
    if (take('{')) return inline_table(out, depth);
    return number_or_boolean(out);
  }

  bool string(TomlValue& out) {
    out.kind = Kind::string;
    out.string = run(is_text);
    return take('"') && !(out.string.empty() && next_is('"'));  // """ begins a text of several lines
  }

  bool array(TomlValue& out, int depth) {
    out.kind = Kind::array;
    for (;;) {
      if (!gap()) return false;
      if (take(']')) return true;
      if (out.items.empty()) out.items.reserve(kFew);
      if (!value(out.items.emplace_back(), depth + 1) || !gap()) return false;
      if (!take(',')) return take(']');
    }
  }

  /// Skips blanks, comments and line ends between the items of an array.
  bool gap() {
    run(is_blank);
    while (next_is('#') || next_is('\r') || next_is('\n')) {
      if (!line_end()) return false;
      run(is_blank);
    }
    return true;
  }

  bool inline_table(TomlValue& out, int depth) {
    run(is_blank);
    if (take('}')) return true;
    do {
      run(is_blank);
      if (!pair(out, depth + 1)) return false;
      run(is_blank);
    } while (take(','));
    return take('}');
  }

  bool number_or_boolean(TomlValue& out) {
    const std::string_view word = run([](char c) { return is_key(c) || c == '.' || c == '+'; });
    if (word == "true" || word == "false") {
      out.kind = Kind::boolean;
      out.boolean = word == "true";
      return true;
    }
    return number(word, out);
  }

  static std::size_t digits(std::string_view text) {
    const auto other = std::find_if_not(text.begin(), text.end(), is_digit);
    return static_cast<std::size_t>(other - text.begin());
  }

  /// Reads 12, -3, 0.5, 4e-6: decimal numbers without separators, leading '+' or leading zeros.
  static bool number(std::string_view word, TomlValue& out) {
    std::string_view rest = word;
    if (rest.starts_with('-')) rest.remove_prefix(1);
    const std::size_t whole = digits(rest);
    if (whole == 0 || (whole > 1 && rest[0] == '0') || word.size() > kMaxNumber) return false;
    rest.remove_prefix(whole);
    out.kind = rest.empty() ? Kind::integer : Kind::real;
    if (rest.empty()) return whole <= kMaxInteger && read(word, out.integer);
    if (rest[0] == '.' && !skip(rest, 1)) return false;
    if (!rest.empty() && (rest[0] == 'e' || rest[0] == 'E')) {
      const bool has_sign = rest.size() > 1 && (rest[1] == '-' || rest[1] == '+');
      if (!skip(rest, has_sign ? 2 : 1)) return false;
    }
    return rest.empty() && read(word, out.real);
  }

  /// Takes `mark` characters and the digits after them. False when there is no digit.
  static bool skip(std::string_view& rest, std::size_t mark) {
    rest.remove_prefix(mark);
    const std::size_t count = digits(rest);
    rest.remove_prefix(count);
    return count > 0;
  }

  template <class Number>
  static bool read(std::string_view word, Number& out) {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), out);
    return error == std::errc() && end == word.data() + word.size();
  }

  const char* at_;
  const char* const end_;
  int line_ = 1;
  TomlValue root_;
  TomlValue* table_ = &root_;      ///< table of the last header
  std::vector<int> header_lines_;  ///< ascending
};

}  // namespace

std::optional<TomlValue> quick_toml(std::string_view toml) { return QuickToml(toml).read(); }

}  // namespace kiln::source
