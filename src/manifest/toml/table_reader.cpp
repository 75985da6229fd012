#include "manifest/toml/table_reader.hpp"

#include <algorithm>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "manifest/toml/string.hpp"

namespace kiln::source {
using Kind = TomlValue::Kind;

TableReader::TableReader(const TomlValue& table, std::string title, const std::string& file)
    : table_(table), title_(std::move(title)), file_(file) {
  if (table.kind != Kind::table) {
    throw Error(Errc::manifest, file + ':' + std::to_string(table.line) + ": " + title_ +
                                    " must be a table, not " + table.kind_name());
  }
}

TableReader::TableReader(const TomlValue& table, std::string title, const std::string& file,
                         std::initializer_list<std::string_view> known)
    : TableReader(table, std::move(title), file) {
  check(known);
}

void TableReader::check_keys(const std::vector<std::string>& known) const { check(known); }

template <class Known>
void TableReader::check(const Known& allowed) const {
  for (const auto& [key, value] : table_.members) {
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    const std::vector<std::string> known(allowed.begin(), allowed.end());
    const char* what =
        value.kind == Kind::table || (!value.items.empty() && value.items[0].kind == Kind::table) ? "table"
                                                                                                  : "key";
    throw Error(Errc::manifest, file_ + ':' + std::to_string(value.line) + ": " + title_ +
                                    (title_.empty() ? "" : ": ") + "unknown " + what + ' ' +
                                    base::quote(key) + base::did_you_mean(key, known) +
                                    "; known: " + base::join(known, " "));
  }
}

const TomlValue& TableReader::need(std::string_view key) const {
  if (const TomlValue* found = find(key)) return *found;
  throw Error(Errc::manifest, file_ + ':' + std::to_string(table_.line) + ": " + title_ +
                                  (title_.empty() ? "" : " ") + "needs '" + std::string(key) + '\'');
}

std::string TableReader::need_line(std::string_view key) const {
  need(key);
  std::string out = *text(key);
  if (out.empty()) fail(key, "must not be empty");
  if (!is_one_line(out)) fail(key, base::quote(out) + " must be one line without control characters");
  return out;
}

std::optional<std::string> TableReader::text(std::string_view key) const {
  const TomlValue* found = find(key);
  if (!found) return std::nullopt;
  if (found->kind != Kind::string) fail_wanted(key, *found, "a string");
  return found->string;
}

std::string TableReader::text_or(std::string_view key, std::string fallback) const {
  return text(key).value_or(std::move(fallback));
}

bool TableReader::boolean_or(std::string_view key, bool fallback) const {
  const TomlValue* found = find(key);
  if (!found) return fallback;
  if (found->kind != Kind::boolean) fail_wanted(key, *found, "true or false");
  return found->boolean;
}

std::optional<std::int64_t> TableReader::count(std::string_view key) const {
  const TomlValue* found = find(key);
  if (!found) return std::nullopt;
  if (found->kind != Kind::integer) fail_wanted(key, *found, "an integer");
  if (found->integer < 0) fail(key, std::to_string(found->integer) + " must not be negative");
  return found->integer;
}

std::vector<std::string> TableReader::lines(std::string_view key) const {
  std::vector<std::string> out;
  const TomlValue* found = find(key);
  if (!found) return out;
  if (found->kind != Kind::array) fail_wanted(key, *found, "an array of strings");
  for (const TomlValue& item : found->items) {
    if (item.kind != Kind::string) fail_wanted(key, item, "an array of strings");
    if (item.string.empty() || !is_one_line(item.string))
      fail(key, base::quote(item.string) + " must be one line without control characters");
    out.push_back(item.string);
  }
  return out;
}

static std::string expression_text(const TableReader& reader, std::string_view key, const TomlValue& value) {
  if (value.kind == Kind::integer)
    return value.integer < 0 ? '(' + std::to_string(value.integer) + ')' : std::to_string(value.integer);
  if (value.kind != Kind::string) reader.fail_wanted(key, value, "an integer or an expression in a string");
  return value.string;
}

/// Builds the text of the place only for an expression with an error.
static Expression compile(const TableReader& reader, std::string_view key, std::string_view text,
                          const Symbols& symbols) {
  try {
    return Expression::compile(text, symbols, {});
  } catch (const Error&) {
    return Expression::compile(text, symbols, reader.where(key));
  }
}

Expression TableReader::expression(std::string_view key, const Symbols& symbols) const {
  const TomlValue* found = find(key);
  if (!found) return {};
  if (found->kind == Kind::integer) return Expression::constant(found->integer);
  if (found->kind == Kind::string) return compile(*this, key, found->string, symbols);
  fail_wanted(key, *found, "an integer or an expression in a string");
}

std::vector<std::string> TableReader::expression_texts(std::string_view key) const {
  std::vector<std::string> out;
  const TomlValue* found = find(key);
  if (!found) return out;
  if (found->kind != Kind::array) fail_wanted(key, *found, "an array of expressions");
  for (const TomlValue& item : found->items) out.push_back(expression_text(*this, key, item));
  return out;
}

std::vector<Expression> TableReader::expressions(std::string_view key, const Symbols& symbols,
                                                 std::size_t most) const {
  std::vector<Expression> out;
  const TomlValue* found = find(key);
  if (!found) return out;
  if (found->kind != Kind::array) fail_wanted(key, *found, "an array of expressions");
  out.reserve(found->items.size());
  for (const TomlValue& item : found->items)
    out.push_back(compile(*this, key, expression_text(*this, key, item), symbols));
  if (out.empty() || out.size() > most) {
    fail(key, "has " + std::to_string(out.size()) + " expressions; expected 1 to " + std::to_string(most));
  }
  return out;
}

std::vector<const TomlValue*> TableReader::tables(std::string_view key) const {
  std::vector<const TomlValue*> out;
  const TomlValue* found = find(key);
  if (!found) return out;
  if (found->kind != Kind::array) fail(key, "must be written [[" + std::string(key) + "]]");
  for (const TomlValue& item : found->items) {
    if (item.kind != Kind::table) fail(key, "must be written [[" + std::string(key) + "]]");
    out.push_back(&item);
  }
  return out;
}

std::string TableReader::where(std::string_view key) const {
  const TomlValue* found = find(key);
  return file_ + ':' + std::to_string(found ? found->line : table_.line) + ": " + title_ +
         (title_.empty() ? "" : " ") + std::string(key);
}

void TableReader::fail(std::string_view key, const std::string& message) const {
  throw Error(Errc::manifest, where(key) + ": " + message);
}

void TableReader::fail_wanted(std::string_view key, const TomlValue& value, const char* wanted) const {
  fail(key, std::string("expected ") + wanted + ", found " + value.kind_name());
}

bool is_one_line(std::string_view text) noexcept {
  return std::none_of(text.begin(), text.end(), is_control);
}

}  // namespace kiln::source
