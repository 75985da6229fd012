// The texts that belong to one kernel: its source and the project's headers, as kiln's own scan of includes finds
// them.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "overlay/macros.hpp"
#include "overlay/outline.hpp"
#include "tools/kiln/import/conditions.hpp"
#include "tools/kiln/import/place.hpp"

namespace kiln::cli {

using source::Token;
using Tokens = std::vector<Token>;

struct SourceText {
  std::string path, text;
  int first_line = 1;
  Tokens tokens;
  std::vector<source::Declaration> declarations;
  std::vector<std::size_t> line_ends;  ///< bytes
  /// Positions of the directives that change whether a compiler sees what follows them.
  std::map<std::size_t, Conditions::Truth> branches;

  /// `yes` when a compiler sees the token, as far as the names of macros tell.
  Conditions::Truth is_seen(std::size_t token) const;

  int line_of(const Token& token) const;
  /// "norm.cu:374"
  std::string place_of(const Token& token) const;
};

/// Immutable, apart from moves.
class SourceTexts {
 public:
  using File = std::pair<std::string, std::string>;  ///< path and text

  /// The source comes first. `define` are macros of the command line. `unread` says why headers are not here.
  SourceTexts(std::vector<File> files, Assignments define, std::string unread = {});

  /// In the order of the files. The last texts are declarations of kernels that macros made; they have the path
  /// of the file that calls the macro.
  const std::deque<SourceText>& all() const noexcept { return texts_; }
  const source::Macros& macros() const noexcept { return macros_; }
  const Assignments& define() const noexcept { return define_; }
  const std::string& unread() const noexcept { return unread_; }
  /// Names of #include directives in the source and in the headers that it includes, as far as their #if can be
  /// true. A condition that this reader does not understand counts as true.
  const std::set<std::string>& included_headers() const noexcept { return included_; }

 private:
  void add(std::string path, std::string text, int first_line);
  void expand_kernels();

  std::deque<SourceText> texts_;
  std::set<std::string> included_;
  Assignments define_;
  std::string unread_;
  source::Macros macros_;
};

/// Throws Error(io) when the source cannot be read. Where a header cannot be read, only the source is.
SourceTexts read_texts(const ImportAsked& asked, const ImportSite& site, const Assignments& define);

}  // namespace kiln::cli
