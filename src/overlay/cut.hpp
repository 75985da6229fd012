// Cuts away what a kernel does not use, so that a compiler for device code can read a file that nvcc compiles:
// launchers, context classes, main, explicit instantiations, other kernels.
//
// The texts stay as they are on disk; the compiler gets the result. A name that any kept text mentions keeps
// each of its declarations, so no overload is chosen differently. A cut either leaves the kernel as it is, or
// leaves a name undeclared or a function undefined, which is an error.
//
// A function is cut when nothing that is kept mentions its name. One that has neither __device__, __global__ nor
// constexpr is host code: nvcc would refuse a call of it in a kernel. It loses its body, but keeps its head when
// kept text mentions its name, because sizeof and decltype may choose it. The head is cut, too, when a device
// function of the same scope has equal parameters, when only kernels have the name, or when the head needs a
// namespace that nothing declares.
// Operators are cut without that. Constructors, operators and virtual functions of a kept class always keep their
// heads.
// Types, aliases, variables, concepts and deduction guides are cut when nothing that is kept mentions their names. A specialisation
// of a template that no text declares is kept with the types among its arguments. Explicit instantiations are
// always cut, also calls of macros that stand for nothing else. Directives are never cut, and every kept line
// keeps its number.
// A declaration that a macro makes has the names of each expansion. It is always kept when the macro makes more
// than one declaration and one of them is a type, device code or a pragma. A member that begins with such a macro
// is never cut. When kept text uses a macro with ##, each name that is made of kept words counts as mentioned.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::source {

/// The version of the rules above. It is part of the key.
inline constexpr std::string_view kCutVersion = "2";

struct CutRules {
  std::vector<std::string> roots;  ///< C++ texts whose words are needed: name expressions, exports
  std::vector<std::string>
      keep;  ///< names whose declarations are kept in any case; of members, with their class
  std::vector<std::string> cut;  ///< names whose functions and variables are cut in any case
};

struct CutTexts {
  std::vector<std::string> texts;  ///< one for each text, of equal size and with equal lines
  std::set<std::string> names;     ///< of declarations that were cut and that no kept declaration has
  bool unmarked = false;  ///< a kept function has no execution space: it needs [compile] default_device
};

/// Any bytes are allowed as texts.
CutTexts cut_host_code(const std::vector<std::string_view>& texts, const CutRules& rules);

}  // namespace kiln::source
