// Text with names in braces: "{NAME}" in name expressions and messages. "{{" and "}}" are literal braces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::source {

struct Braces {
  struct Piece {
    std::string text;
    bool is_name = false;
  };
  std::vector<Piece> pieces;
  std::string problem;  ///< why the text is malformed; empty when it is not
};

Braces split_braces(std::string_view text);

/// The text with each name replaced by what `value_of` returns for it.
template <class ValueOf>
std::string fill_braces(std::string_view text, ValueOf&& value_of) {
  std::string out;
  for (const Braces::Piece& piece : split_braces(text).pieces)
    out += piece.is_name ? value_of(piece.text) : piece.text;
  return out;
}

}  // namespace kiln::source
