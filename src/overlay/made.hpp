// Declarations that macros make, in whole or in part: KERNEL(name, int n) { ... }.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "overlay/macros.hpp"
#include "overlay/outline.hpp"

namespace kiln::source {

/// Reads declarations once more, with their macros expanded. The names that it gives live as long as this object.
class MadeDeclarations {
 public:
  struct Made {
    bool whole = false;  ///< it may declare more than the names that the declaration got
    Marks marks;         ///< of functions in the expansions
  };

  /// All macros must be known before the first read.
  explicit MadeDeclarations(const Macros& macros) : macros_(macros) {}
  MadeDeclarations(const MadeDeclarations&) = delete;

  /// Gives a declaration the kind, the names and the arguments of its expansions.
  Made read(Declaration& d, std::string_view text, const std::vector<Token>& tokens);
  /// True when a use of these words may change device code without a name: types, device functions, pragmas.
  bool makes_device_code(const std::vector<std::string_view>& words) const;

 private:
  bool makes_more(std::string_view name);
  std::vector<std::string_view> naming_macros(const Declaration& d, const std::vector<Token>& tokens);

  const Macros& macros_;
  std::deque<std::string> expanded_;
  std::unordered_map<std::string_view, bool> makes_more_;
};

}  // namespace kiln::source
