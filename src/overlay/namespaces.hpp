// The words of texts that may be names of namespaces or types.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "overlay/macros.hpp"
#include "overlay/tokens.hpp"

namespace kiln::source {

class Namespaces {
 public:
  Namespaces() = default;
  /// `tokens` has the tokens of each text, and `macros` the macros of all texts. The texts must outlive this object.
  Namespaces(const std::vector<std::vector<Token>>& tokens, const Macros& macros);

  /// True when the head of a function has LIB::NAME, and LIB is certainly no namespace or type: every text has it
  /// only with `::` after it, and it is in no library that kiln knows. No compiler could read the head.
  /// `scope` is the namespace in which the function stands.
  bool are_unknown_in(std::string_view head, std::string_view scope) const;

 private:
  void note_names(const std::vector<Token>& tokens);

  WordSet names_;        ///< words that may be names of namespaces or types
  WordSet namespaces_;   ///< words after `namespace`
  bool unsure_ = false;  ///< namespaces may be here that no text names: a macro's, or those in a library
};

}  // namespace kiln::source
