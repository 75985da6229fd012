// Reads one TOML table with types. Every error names file, line, table and key.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "expression/expression.hpp"
#include "manifest/toml/tree.hpp"

namespace kiln::source {

/// Keeps references to the table and the file's name.
class TableReader {
 public:
  /// Throws Error(manifest) when `table` is not a table, or has an unknown key.
  TableReader(const TomlValue& table, std::string title, const std::string& file,
              std::initializer_list<std::string_view> known);
  /// Accepts any key, for tables whose keys are names.
  TableReader(const TomlValue& table, std::string title, const std::string& file);

  /// Throws Error(manifest) for a key that is not in `known`.
  void check_keys(const std::vector<std::string>& known) const;

  const TomlValue& table() const noexcept { return table_; }
  const std::string& file() const noexcept { return file_; }
  const std::string& title() const noexcept { return title_; }
  const TomlValue* find(std::string_view key) const noexcept { return table_.find(key); }
  bool has(std::string_view key) const noexcept { return find(key) != nullptr; }

  /// These two throw when the key is missing.
  const TomlValue& need(std::string_view key) const;
  std::string need_line(std::string_view key) const;

  /// The functions below return nothing, the fallback or an empty list when the key is missing.
  std::optional<std::string> text(std::string_view key) const;
  std::string text_or(std::string_view key, std::string fallback) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::optional<std::int64_t> count(std::string_view key) const;  ///< an integer >= 0
  /// An array of strings without control characters.
  std::vector<std::string> lines(std::string_view key) const;
  /// A string or integer as an expression; empty when the key is missing.
  Expression expression(std::string_view key, const Symbols& symbols) const;
  /// An array of expressions. An empty array is an error.
  std::vector<Expression> expressions(std::string_view key, const Symbols& symbols, std::size_t most) const;
  /// The texts of an array of expressions.
  std::vector<std::string> expression_texts(std::string_view key) const;

  /// The elements of an array of tables; empty when the key is missing.
  std::vector<const TomlValue*> tables(std::string_view key) const;

  /// "FILE:LINE: [param.T] values".
  std::string where(std::string_view key) const;
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;
  [[noreturn]] void fail_wanted(std::string_view key, const TomlValue& value, const char* wanted) const;

 private:
  template <class Known>
  void check(const Known& known) const;

  const TomlValue& table_;
  std::string title_;
  const std::string& file_;
};

/// True for a text without control characters. Options, file names and C++ text must be such texts.
bool is_one_line(std::string_view text) noexcept;

}  // namespace kiln::source
