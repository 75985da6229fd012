// The declarations of the texts that are cut together, and the facts that follow from all of them.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "overlay/cut.hpp"
#include "overlay/included.hpp"
#include "overlay/macros.hpp"
#include "overlay/made.hpp"
#include "overlay/namespaces.hpp"
#include "overlay/piece.hpp"

namespace kiln::source {

/// Pieces are named by their indices. The texts and the rules must outlive this object.
class Declarations {
 public:
  /// The kinds of functions of one name.
  struct Functions {
    bool kernel = false, device = false;  ///< one of them is a kernel; one is a device function
    bool host = false;        ///< a template, a class or a free function says that one is for the host
    bool dispatched = false;  ///< one of them is virtual
    int undefined = 0;        ///< declarations of device functions, less their definitions

    void add(const Marks& marks, bool is_host) {
      kernel = kernel || marks.global;
      device = device || (marks.device && !marks.global);
      host = host || is_host;
      dispatched = dispatched || marks.dispatched;
    }
  };

  Declarations(const std::vector<std::string_view>& texts, const CutRules& rules);

  const std::vector<Piece>& pieces() const noexcept { return pieces_; }
  const Macros& macros() const noexcept { return macros_; }
  /// The names of all pieces, in no order.
  std::vector<std::string_view> names() const;
  /// The pieces that declare a name.
  std::span<const std::size_t> of_name(std::string_view name) const;
  /// The pieces that a word may keep although it is not their name: specialisations of templates that no text
  /// declares, functions with an inherited execution space, and instantiations with launch bounds.
  std::span<const std::size_t> of_type(std::string_view word) const;
  /// The member functions of a class.
  std::span<const std::size_t> members_of(std::size_t piece) const;
  /// The kinds of functions of a name; null when no piece has it, and no member without a body.
  const Functions* functions(std::string_view name) const;
  /// The words of the texts that stand inside of a declaration.
  const std::vector<std::string_view>& included_words() const noexcept { return included_.words; }

  /// True for what stays although no text may mention it.
  bool is_root(const Piece& piece) const;
  /// The classes of these texts in the head of a function: its own, the one of its result, template arguments.
  std::vector<std::string_view> types_in_head(const Piece& piece) const;
  /// True when no compiler could read the head of a function, because it needs a namespace that does not exist.
  bool names_unknown_namespace(const Piece& piece) const;

 private:
  using Pieces = std::unordered_map<std::string_view, std::vector<std::size_t>>;

  void read(std::size_t text, std::string_view source, const std::vector<Token>& tokens);
  void judge(Piece& piece);
  void inherit(std::size_t i);
  void note_bounds(std::size_t i);
  bool has_unknown_macro(const Piece& piece) const;
  bool is_foreign_specialisation(const Declaration& declaration) const;
  std::vector<std::string_view> types_of(const Declaration& declaration) const;

  const CutRules& rules_;
  Macros macros_;
  MadeDeclarations made_{macros_};
  Namespaces namespaces_;
  IncludedTexts included_;
  std::vector<Piece> pieces_;
  Pieces by_name_;
  std::unordered_map<std::string_view, Functions> functions_;
  Pieces by_type_;
  std::unordered_map<std::size_t, std::vector<std::size_t>> members_;
};

}  // namespace kiln::source
