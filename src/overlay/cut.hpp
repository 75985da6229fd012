// Cuts host code away, so that a compiler for device code can read a file that nvcc compiles: launchers, context
// classes, main, explicit instantiations, other kernels.
//
// The texts stay as they are on disk; the compiler gets the result. Only certain host code is cut, and declarations
// that no kept text mentions and that cannot change other text:
//
//   - functions without __device__, __global__ or constexpr, also through macros. nvcc would refuse a call of one
//     in a kernel. One that kept text mentions keeps its head, because sizeof and decltype may choose it.
//     A specialisation, or a member defined outside of its class, is what the other declarations of its name are.
//   - types, aliases, host variables, concepts and other kernels that no kept text mentions.
//   - explicit instantiations, apart from those with launch bounds.
//
// Everything else stays and counts as kept text: device functions, variables and specialisations that nothing
// names, data members, and what the reader does not understand. Where brackets cannot be paired, all of the rest of
// the text stays. Directives are never cut, apart from pragmas of a statement, and every kept line keeps its number.
// With `unused`, device code is kept only when kept text mentions it. This may change a kernel without an error.
// docs/internals/compile.md has the rules for each kind of declaration, and the sources that are known to change a kernel.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::source {

/// The version of the rules above. It is part of the key.
inline constexpr std::string_view kCutVersion = "5";

struct CutRules {
  std::vector<std::string> roots;  ///< C++ texts whose words are needed: name expressions, exports
  std::vector<std::string>
      keep;  ///< names whose declarations are kept in any case; of members, with their class
  std::vector<std::string> cut;  ///< names whose functions and variables are cut in any case
  /// Paths of the texts. A text that another one includes inside of a declaration is found by its file name.
  std::vector<std::string> paths = {};
  bool unused = false;  ///< device code that nothing mentions is cut, too
};

struct CutTexts {
  std::vector<std::string> texts;  ///< one for each text, of equal size and with equal lines
  std::set<std::string> names;     ///< of declarations that were cut and that no kept declaration has
  bool unmarked = false;  ///< a kept function has no execution space: it needs [compile] default_device
};

/// Any bytes are allowed as texts.
CutTexts cut_host_code(const std::vector<std::string_view>& texts, const CutRules& rules);

}  // namespace kiln::source
