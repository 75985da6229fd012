// Evidence of the sources about the values of a kernel's template parameters.
#pragma once

#include <cstdint>
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
  /// Why a value may be another one, or the place be no use of the kernel; empty: it is certain. One for each value.
  std::vector<std::string> doubts;
};

class SourceValues {
 public:
  /// Both must outlive this object.
  SourceValues(const SourceTexts& texts, const KernelDeclaration& kernel);

  /// The instantiations of the kernel that the texts show. The places with most certain values come first.
  std::vector<Evidence> instantiations() const;
  /// C++ text with namespaces added, as the kernel's namespace finds the names; empty when a name in it is declared
  /// nowhere outside of functions.
  std::string qualified(const Tokens& text) const { return qualified(text, kernel_.scope); }
  /// The enum that a type names; null when the texts do not declare it.
  const EnumDeclaration* enumeration(const std::string& type) const;

 private:
  using Scopes = std::set<std::string_view>;
  /// The meaning of a use of the kernel's name.
  enum class Use : std::uint8_t { other, maybe, kernel };

  void add_enum(const SourceText& text, const source::Declaration& declaration);
  std::string qualified(const Tokens& text, std::string_view from) const;
  Use use_at(const SourceText& text, std::size_t at, const source::Declaration* around) const;
  std::string doubt_of(const Tokens& value, const source::Declaration* around) const;

  const SourceTexts& texts_;
  const KernelDeclaration& kernel_;
  std::map<std::string_view, Scopes> scopes_;  ///< of names outside of functions
  std::map<std::string_view, int> declared_;   ///< how often the texts declare a name, anywhere
  std::set<std::string_view> members_;         ///< names of member functions
  std::map<std::string, EnumDeclaration> enums_;
};

}  // namespace kiln::cli
