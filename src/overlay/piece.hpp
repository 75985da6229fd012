// A declaration of one of the texts that are cut together, with what all texts and the rules say about it.
#pragma once

#include <cstddef>
#include <string_view>

#include "overlay/head.hpp"
#include "overlay/macros.hpp"
#include "overlay/outline.hpp"

namespace kiln::source {

struct Piece {
  Declaration declaration;
  std::size_t text = 0;
  std::string_view head;  ///< of a function with a body: the text before the body; else all of it
  std::size_t parent = kNoDeclaration;  ///< index of a piece
  Marks marks;
  bool cut_by_name = false, keep_by_name = false;
  bool whole = false;    ///< a macro in it may make a declaration that no word names
  bool lasting = false;  ///< a pragma in it may change the text after it
  bool host = false;     ///< a function that is certainly for the host
  /// True for a function that has the execution space of another declaration: of its template, or of its class.
  bool inherits = false;

  bool is_member() const noexcept { return parent != kNoDeclaration; }
  bool is_specialisation() const noexcept {
    return declaration.kind == DeclarationKind::function && (declaration.specialisation || marks.specialises);
  }
  /// True for a function of streams, which device code does not have.
  bool has_stream() const {
    const Declaration& d = declaration;
    const auto& words = d.defined() ? d.head_words : d.words;
    return contains(words, "ostream") || contains(words, "istream");
  }
};

}  // namespace kiln::source
