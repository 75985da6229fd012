// The outline of a C++ text: its declarations at namespace scope, and the member functions of its classes that have
// a body. Every other member is part of its class.
// It is read from tokens alone, so it is only as exact as a reader without a compiler can be. Where
// it is not sure, a declaration counts as `fixed`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "overlay/brackets.hpp"
#include "overlay/macros.hpp"

namespace kiln::source {

inline constexpr std::size_t kNoDeclaration = static_cast<std::size_t>(-1);

enum class DeclarationKind : std::uint8_t {
  fixed,          ///< a using-directive, or text that the reader does not understand
  function,       ///< with or without a body
  named,          ///< a type, an alias, a variable, a concept
  check,          ///< static_assert
  call,           ///< a macro that stands alone: NAME(...), or NAME when its replacement is complete
  instantiation,  ///< an explicit instantiation: template void f<int>();
};

/// A member function or a friend without a body.
struct MemberDeclaration {
  std::string_view name;
  Marks marks;
};

struct Declaration {
  DeclarationKind kind = DeclarationKind::fixed;
  std::size_t begin = 0, end = 0;  ///< bytes of the text
  TokenRange tokens;
  std::string scope;  ///< "outer::inner", without unnamed and inline namespaces; empty for a member function
  std::size_t parent = kNoDeclaration;       ///< of a member function with a body: the index of its class
  std::vector<std::string_view> names;       ///< what it declares, and at times more
  std::vector<std::string_view> words;       ///< every word in it, each once, without its member functions
  std::vector<std::string_view> specifiers;  ///< words of its head outside of parentheses
  /// False from the place on where brackets cannot be paired (overlay/balance.hpp), or where template parameters
  /// do not end: the declaration may end somewhere else.
  bool paired = true;
  bool includes = false;  ///< an #include stands in it
  /// The words of a specialisation's template arguments, without its own parameters.
  std::vector<std::string_view> arguments;
  bool specialisation = false;               ///< also of a function: template <>
  std::size_t body_begin = 0;                ///< of a function that is defined here: the place of its '{'
  bool qualified = false;                    ///< of a function: CLASS::NAME, which its class declares, too
  bool guide = false;                        ///< a deduction guide
  bool type = false;                         ///< a class or an enum with a body
  std::vector<std::string_view> head_words;  ///< of a function with a body: the words before it
  /// The member functions and friends that a class declares without a body.
  std::vector<MemberDeclaration> members;
  /// True for a member function that its class always declares: a constructor, an operator, a virtual function, or
  /// one that begins with a macro that may make another member.
  bool stays_in_class = false;

  bool defined() const noexcept { return body_begin != 0; }
};

/// `macros` has the macros of all texts that belong together.
std::vector<Declaration> outline_of(std::string_view text, const std::vector<Token>& tokens,
                                    const Macros& macros);

}  // namespace kiln::source
