// Texts that stand inside of a declaration of another text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "overlay/piece.hpp"
#include "overlay/tokens.hpp"

namespace kiln::source {

struct IncludedTexts {
  std::vector<bool> contains;           ///< for each text
  std::vector<std::string_view> words;  ///< all words of these texts
};

/// The texts that an #include inside of a declaration brings, directly or through others. Their words belong
/// to that declaration, so they stay whole. `tokens` has the tokens of each text, and `paths` the paths of
/// the texts, as far as they are known.
IncludedTexts find_included(const std::vector<Piece>& pieces, const std::vector<std::vector<Token>>& tokens,
                            const std::vector<std::string>& paths);

}  // namespace kiln::source
