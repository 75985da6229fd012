#include "closure/include_scan.hpp"

#include <algorithm>
#include <unordered_set>

#include "closure/interesting.hpp"
#include "closure/spliced_text.hpp"

namespace kiln::source {
namespace {

constexpr std::string_view kDateTime[] = {"__DATE__", "__TIME__", "__TIMESTAMP__"};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return out;
}

class Scanner : SplicedText {
 public:
  explicit Scanner(std::string_view text) : SplicedText(text), text_(text) {}

  ScanResult run() {
    for_each_interesting(text_, [this](std::size_t at) {
      switch (text_[at]) {
        case '#':
          return directive(at, at + 1);
        case '%':
          return digraph(at);
        case '?':
          return trigraph(at);
        case '\\':
          return splice(at);
        case '_':
          return date_time(at);
        default:
          return macro(at);
      }
    });
    return std::move(out_);
  }

 private:
  void add(bool quoted, bool next) {
    const auto same = [&](const IncludeDirective& d) {
      return d.quoted == quoted && d.next == next && d.name == name_;
    };
    constexpr std::size_t kFew = 48;  // with fewer directives, comparing is faster than hashing
    if (out_.directives.size() < kFew) {
      if (std::any_of(out_.directives.begin(), out_.directives.end(), same)) return;
    } else {
      const auto identity = [](const IncludeDirective& d) {
        return std::string{d.quoted ? '"' : '<', d.next ? 'n' : ' '} + d.name;
      };
      if (seen_.empty()) {
        for (const IncludeDirective& d : out_.directives) seen_.insert(identity(d));
      }
      if (!seen_.insert(identity({name_, quoted, next})).second) return;
    }
    out_.directives.push_back({name_, quoted, next});
  }
  /// Adds the delimited name at i, if there is one.
  bool target(std::size_t i, bool next) {
    if (at(i) == '<' && name(i + 1, '>', false, name_)) return add(false, next), true;
    if (at(i) == '"' && name(i + 1, '"', false, name_)) return add(true, next), true;
    return false;
  }

  /// Reads a directive. `hash` is the position of '#' in any of its forms; `i` is the position after it.
  void directive(std::size_t hash, std::size_t i) {
    if (!may_be_first_on_line(hash)) return;
    i = skip_blanks(i);
    const char first = at(i);
    if (first != 'i' && first != 'd' && first != 'e') return;
    const std::string_view keyword = word(i);
    if (keyword == "define") {
      const bool has_parameters = definition(i);
      strings(i);
      macro_.clear();
      if (has_parameters) function_until_ = strings_until_;
      return;
    }
    if (keyword == "if" || keyword == "elif") return strings(i);
    const bool next = keyword == "include_next";
    if (!next && keyword != "include" && keyword != "import" && keyword != "embed") return;
    i = skip_blanks(i);
    if (target(i, next)) return;
    const bool expression = is_word(at(i)) || at(i) == '(' || static_cast<unsigned char>(at(i)) >= 0x80;
    if (!expression) return;
    out_.computed = true;
    operand(i);
  }
  void digraph(std::size_t i) {
    const std::size_t colon = skip_splices(i + 1);
    if (at(colon) == ':') directive(i, colon + 1);
  }
  void trigraph(std::size_t i) {
    if (at(i + 1) != '?') return;
    if (at(i + 2) == '=') directive(i, i + 3);
    if (at(i + 2) == '/') splice(i);
  }

  /// Records the macro at i, if there is one: it names a header.
  void operand(std::size_t i) {
    std::string found(word(i));
    auto& known = out_.operands;
    if (!found.empty() && std::find(known.begin(), known.end(), found) == known.end())
      known.push_back(std::move(found));
  }

  /// Reads a definition from `i`, which is past the "define". True for a function-like macro.
  bool definition(std::size_t i) {
    i = skip_blanks(i);
    const std::size_t start = i;
    while (is_word(at(i))) ++i;
    const std::size_t end = i;
    macro_ = text_.substr(start, end - start);
    if (end == start || at(i) == '(') return end != start;
    i = skip_blanks(i);
    const std::size_t value = i;
    while (i < text_.size() && i - value <= kMaxName &&
           kHeaderCharacter[static_cast<unsigned char>(text_[i])])
      ++i;
    const std::size_t value_end = i;
    if (value_end == value || (at(value) >= '0' && at(value) <= '9') || at(value) == '-') return false;
    i = skip_blanks(i);
    const bool alone =
        i >= text_.size() || at(i) == '\n' || at(i) == '\r' || text_.substr(i).starts_with("//");
    if (alone)
      out_.definitions.emplace_back(text_.substr(start, end - start), text_.substr(value, value_end - value));
    return false;
  }

  /// True when only blanks, and comments that end in "*/", stand before '#' on its line. A splice may divide
  /// such a comment. Examples in "// ..." and " * ..." comments thus do not count. Doubtful cases count.
  bool may_be_first_on_line(std::size_t hash) const {
    while (hash > 0 && is_blank(text_[hash - 1])) --hash;
    if (hash == 0) return true;
    const char before = text_[hash - 1];
    if (before == '/') return hash == 1 || text_[hash - 2] == '*' || text_[hash - 2] == '\n';
    return before == '\n' || before == '\0' || static_cast<unsigned char>(before) >= 0x80;
  }

  /// Adds header-like strings from i to the end of the logical line, comments included. Text that was
  /// searched once is not searched again: the strings in it do not depend on where the search began.
  void strings(std::size_t i) {
    if (i < strings_until_) return;
    std::size_t comment_until = 0;
    for (; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == '"') {
        if (!name(i + 1, '"', true, name_)) continue;
        if (name_[0] == '/')
          absolute(true);
        else if (name_.back() != '.' && name_.find_first_of("./") != std::string::npos)
          add(true, false);
      } else if (c == '<') {
        const bool operand = is_word(at(i - 1)) || at(i - 1) == '<';  // static_cast<int>, <<
        if (operand || !name(i + 1, '>', true, name_)) continue;
        if (name_[0] == '/')
          absolute(false);
        else
          add(false, false);
      } else if (c == '/' && at(i + 1) == '*' && i >= comment_until) {
        comment_until = comment_end(i + 2);
      } else if (c == '\n' && i >= comment_until && splice_before(i + 1) == 0) {
        break;
      }
    }
    strings_until_ = i;
  }

  /// Records that the definition being read spells the absolute name_.
  void absolute(bool quoted) {
    if (!macro_.empty()) out_.absolutes.emplace_back(macro_, quoted ? '"' + name_ + '"' : '<' + name_ + '>');
  }

  /// Reads the argument of a macro whose name contains "include"; `i` is the position of "clu" in the name.
  void macro(std::size_t i) {
    if (i < 2 || lower(text_.substr(i - 2, 7)) != "include") return;
    argument(i + 5);
  }
  /// Reads the argument of a macro. `i` is in the macro's name, past the "include".
  void argument(std::size_t i) {
    if (i < argument_until_) return;  // this word was read before
    word(i);
    argument_until_ = i;
    const std::size_t end = i;
    i = skip_blanks(i);
    if (at(i) != '(') return;
    i = skip_blanks(i + 1);
    // A literal in a macro's body may in fact be the macro's parameter.
    if ((!target(i, false) || end < function_until_) && is_probe(end)) {
      out_.computed_probe = true;
      operand(i);
    }
    // A wrapper's argument consists of tokens, so blanks and comments at its end do not count.
    if (at(i) == '<' && name(i + 1, '>', true, name_)) add(false, false);
  }

  /// True when the word that ends at `end` asks if a header exists. A word that is being defined does not
  /// ask: "#define __has_include(x) 0".
  bool is_probe(std::size_t end) const {
    std::size_t begin = end;
    while (begin > 0 && is_word(text_[begin - 1])) --begin;
    if (text_.substr(begin, end - begin).find("has_include") == std::string_view::npos) return false;
    while (begin > 0 && is_blank(text_[begin - 1])) --begin;
    return !text_.substr(0, begin).ends_with("define");
  }

  void date_time(std::size_t i) {
    for (const std::string_view mark : kDateTime) {
      if (text_.substr(i).starts_with(mark)) out_.date_time = true;
    }
  }

  /// A word may continue after a splice: looks at the word that both sides spell together.
  void splice(std::size_t i) {
    if (i == 0 || !is_word(text_[i - 1])) return;
    std::size_t right = skip_splices(i);
    if (right == i || !is_word(at(right))) return;
    constexpr std::size_t kReach = 16;  // longer than any word that matters
    std::string joined;
    for (std::size_t left = i; joined.size() < kReach;) {
      while (const std::size_t length = splice_before(left)) left -= length;
      if (left == 0 || !is_word(text_[left - 1])) break;
      joined += text_[--left];
    }
    std::reverse(joined.begin(), joined.end());
    for (std::size_t n = 0; n < kReach && is_word(at(right)); ++n) {
      joined += text_[right];
      right = skip_splices(right + 1);
    }
    if (lower(joined).find("include") != std::string::npos) argument(right);
    for (const std::string_view mark : kDateTime) {
      if (joined.find(mark) != std::string::npos) out_.date_time = true;
    }
  }

  std::string_view text_;
  ScanResult out_;
  std::string name_;
  std::string macro_;  ///< name of the macro whose definition is being read
  std::unordered_set<std::string> seen_;
  std::size_t strings_until_ = 0, argument_until_ = 0;
  std::size_t function_until_ = 0;  ///< end of the last function-like macro's definition
};

}  // namespace

ScanResult scan_includes(std::string_view text) { return Scanner(text).run(); }

}  // namespace kiln::source
