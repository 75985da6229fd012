// The macros of texts: what a macro's name in front of a declaration stands for, and calls of macros that make
// declarations.
#pragma once

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
  std::vector<std::string_view> parameters;  ///< "__VA_ARGS__" for "..."
  std::vector<Token> replacement;
  bool called = false;  ///< it takes arguments: NAME(...)
  bool braces = false;  ///< opens or closes a scope
};

std::vector<MacroDefinition> macros_of(const std::vector<Token>& tokens);

/// The properties of a function that the words before its name tell.
struct Marks {
  bool global = false, device = false, constant = false, type = false;
  Marks& operator|=(const Marks& other);
};

/// The macros of texts that belong together. The texts must outlive this object. Every definition of a name
/// counts, also in a branch of another compiler.
class Macros {
 public:
  void add(const std::vector<Token>& tokens);

  /// The words of all replacements of a macro, and its parameters; null when there is no such macro.
  const std::vector<std::string_view>* find(std::string_view name) const;
  /// The marks that a word has, directly or as a macro. A macro of a header that is not here is judged by its name.
  Marks marks_of(std::string_view word) const;
  /// True when a call of the macro is an explicit instantiation: template __global__ void f<T>();
  bool instantiates(std::string_view name) const;
  /// True for a macro with arguments that says __global__: KERNEL(name, int n) { ... }.
  bool declares_kernel(std::string_view name) const;
  /// The text of a declaration with the first call of a macro expanded; empty when there is none.
  std::string expanded(std::string_view declaration) const;
  /// Macros that open or close a scope.
  const std::set<std::string_view>& scopes() const noexcept { return scopes_; }

 private:
  struct Known {
    std::vector<std::string_view> words;
    MacroDefinition last;
  };
  std::unordered_map<std::string_view, Known> known_;
  std::set<std::string_view> scopes_;
};

}  // namespace kiln::source
