// Evidence of the sources about the values of a kernel's template parameters.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/kiln/import/declaration.hpp"

namespace kiln::cli {

struct EnumDeclaration {
  std::string qualified;
  std::vector<std::string> values;
};

/// Where the text has KERNEL<...> with arguments that mean the same everywhere.
struct Evidence {
  std::string place;                ///< "norm.cu:374"
  std::vector<std::string> values;  ///< in order; empty: it depends on its surroundings
};

class SourceValues {
 public:
  /// Both must outlive this object.
  SourceValues(const SourceTexts& texts, const KernelDeclaration& kernel);

  /// The instantiations of the kernel that the texts show. The places that say most come first.
  std::vector<Evidence> instantiations() const;
  /// C++ text with namespaces added; empty when a name in it is declared nowhere outside of functions.
  std::string qualified(const Tokens& text) const;
  /// The enum that a type names; null when the texts do not declare it.
  const EnumDeclaration* enumeration(const std::string& type) const;

 private:
  void add_enum(const SourceText& text, const source::Declaration& declaration);

  const SourceTexts& texts_;
  const KernelDeclaration& kernel_;
  std::map<std::string_view, std::set<std::string_view>> scopes_;  ///< of names outside of functions
  std::map<std::string, EnumDeclaration> enums_;
};

}  // namespace kiln::cli
