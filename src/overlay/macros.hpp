// The macros of texts: what a macro's name in front of a declaration stands for, and calls of macros that make
// declarations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "overlay/tokens.hpp"

namespace kiln::source {

struct MacroDefinition {
  std::string_view name;
  std::vector<std::string_view> parameters;  ///< "__VA_ARGS__" for "...", NAME for "NAME..."
  std::vector<Token> replacement;
  bool called = false;    ///< it takes arguments: NAME(...)
  bool variadic = false;  ///< the last parameter takes the rest of the arguments
  bool braces = false;    ///< opens or closes a scope
};

/// True for a pragma that belongs to one statement.
bool is_statement_pragma(std::string_view text);
/// True for a pragma that may change the text after it: no statement's, and none of diagnostics.
bool is_lasting_pragma(std::string_view text);

std::vector<MacroDefinition> macros_of(const std::vector<Token>& tokens);

/// The properties of a function that the words before its name tell.
struct Marks {
  bool global = false, device = false, constant = false, type = false;
  bool specialises = false;  ///< a macro stands for template <>
  bool placeholder = false;  ///< auto
  bool bounds = false;       ///< __launch_bounds__ or another attribute of a kernel
  bool dispatched = false;   ///< virtual, override or final
  bool is_friend = false;
  Marks& operator|=(const Marks& other);
};

/// The text that may follow a use of a macro in front of a declaration.
enum class MacroEnd : std::uint8_t {
  open,     ///< the rest of the declaration: the replacement is not complete
  unclear,  ///< the replacement is empty, or ends with what a parameter or an unknown macro stands for
  closed,   ///< another declaration: the replacement ends with ';' or '}', or has only pragmas
};

/// Definitions of one name. A reader must expect anything of a macro with as many.
inline constexpr std::size_t kMostDefinitions = 256;

/// The macros of texts that belong together. The texts must outlive this object. Only one thread may use it. Every definition of a name
/// counts, also in a branch of another compiler.
class Macros {
 public:
  void add(const std::vector<Token>& tokens);

  /// The words of all replacements of a macro, and its parameters; null when there is no such macro.
  const std::vector<std::string_view>* find(std::string_view name) const;
  /// The marks that a word has, directly or as a macro. A macro of a header that is not here is judged by its name.
  Marks marks_of(std::string_view word) const;
  /// All different definitions of a macro, at most kMostDefinitions; null when there is no such macro.
  const std::vector<MacroDefinition>* definitions(std::string_view name) const;
  /// The names of all macros, in no order.
  std::vector<std::string_view> names() const;
  /// True when a call of the macro makes explicit instantiations and nothing else, by each of its definitions:
  /// template __global__ void f<T>();
  bool instantiates(std::string_view name) const;
  /// True for a macro with a definition that takes arguments.
  bool is_called(std::string_view name) const;
  /// The largest value of all definitions. Text without such a macro is `unclear`.
  MacroEnd end_of(std::string_view name) const;
  /// True when a replacement, or one of a macro in it, has a ';' or a '}': more than a part of one declaration.
  bool completes(std::string_view name) const;
  /// True for _Pragma and __pragma, and for a macro whose replacement reaches one of them.
  bool reaches_pragma(std::string_view name) const;
  /// True when a pragma of the macro may change text after it. `argument` is the first word of the call's arguments.
  bool has_lasting_pragma(std::string_view name, std::string_view argument) const;
  /// The most words that one ## after another joins in a replacement of the macro; 0 without ##.
  std::size_t joined(std::string_view name) const;
  /// True for a macro with arguments that says __global__: KERNEL(name, int n) { ... }.
  bool declares_kernel(std::string_view name) const;
  /// The text of a declaration with the first call of a macro expanded; empty when there is none.
  std::string expanded(std::string_view declaration) const;
  /// Counts the tokens of an expansion. False when all expansions took too many.
  bool spend(std::size_t tokens) const { return (answers_.spent += tokens) < kMostSpent; }
  /// Macros that open or close a scope.
  const std::set<std::string_view>& scopes() const noexcept { return scopes_; }

 private:
  static constexpr std::size_t kMostSpent = std::size_t{1} << 21;
  struct Known {
    std::vector<std::string_view> words;
    std::vector<MacroDefinition> definitions;  ///< the last one is the last of the texts

    const MacroDefinition& last() const { return definitions.back(); }
  };
  /// True when `name` or a macro that it reaches has the property.
  template <typename Property>
  bool reaches(std::string_view name, Property property) const;
  bool instantiates(std::string_view name, std::set<std::string_view>& seen) const;
  MacroEnd end_of(std::string_view name, std::set<std::string_view>& seen) const;
  MacroEnd end_of(const MacroDefinition& macro, std::set<std::string_view>& seen) const;

  /// The answers to earlier questions.
  struct Answers {
    std::unordered_map<std::string_view, Marks> marks;
    std::unordered_map<std::string_view, MacroEnd> ends;
    std::unordered_map<std::string_view, bool> instantiates, completes, pragmas;
    std::size_t spent = 0;
  };
  mutable Answers answers_;
  std::unordered_map<std::string_view, Known> known_;
  std::set<std::string_view> scopes_;
};

}  // namespace kiln::source
