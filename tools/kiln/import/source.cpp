#include "tools/kiln/import/source.hpp"
#include "tools/kiln/import/brackets.hpp"
#include "tools/kiln/import/signature.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"

namespace kiln::cli {
namespace {

struct Scope {
  std::vector<std::string> names;  ///< empty for extern "C", anonymous and inline namespaces
  bool anonymous = false;
};

/// Walks over declarations in namespaces, and skips other nested scopes.
class Walk {
 public:
  Walk(const Tokens& tokens, CudaSource& out) : tokens_(tokens), out_(out) {}

  void run() {
    const std::size_t end = tokens_.size();
    while (at_ < end) {
      const Token& t = tokens_[at_];
      if (t.is("template") && at_ + 1 < end && tokens_[at_ + 1].is("<")) {
        const std::size_t behind = behind_angle(tokens_, at_ + 1, end);
        at_ = behind < end ? behind : at_ + 2;
      } else if (t.is("(") || t.is("[")) {
        at_ = behind_bracket(tokens_, at_, end);
      } else if (t.is("{")) {
        brace();
      } else if (t.is("}")) {
        if (!scopes_.empty()) scopes_.pop_back();
        begin_ = ++at_;
      } else if (t.is(";")) {
        statement();
        begin_ = ++at_;
      } else {
        ++at_;
      }
    }
  }

 private:
  /// Index of the word in the current declaration, outside brackets and template parameters; or npos.
  std::size_t find(std::string_view word) const {
    for (std::size_t i = begin_; i < at_;) {
      if (tokens_[i].is(word)) return i;
      if (tokens_[i].is("template") && i + 1 < at_ && tokens_[i + 1].is("<"))
        i = behind_angle(tokens_, i + 1, at_);
      else if (tokens_[i].is("(") || tokens_[i].is("["))
        i = behind_bracket(tokens_, i, at_);
      else
        ++i;
    }
    return npos;
  }

  void brace() {
    if (const std::size_t where = find("namespace"); where != npos) return enter_namespace(where);
    if (at_ >= 2 && at_ - 2 >= begin_ && tokens_[at_ - 2].is("extern")) return enter({});
    const std::size_t behind = behind_bracket(tokens_, at_, tokens_.size());
    if (find("__global__") != npos) {
      declaration(at_ + 1, behind);
    } else if (const std::size_t where = find("enum"); where != npos) {
      enumeration(where, behind);
    }
    begin_ = at_ = behind;
  }
  void enter(Scope scope) {
    scopes_.push_back(std::move(scope));
    begin_ = ++at_;
  }
  void enter_namespace(std::size_t where) {
    Scope scope;
    const bool is_inline = where > begin_ && tokens_[where - 1].is("inline");
    bool names_follow = true, inline_part = false;
    for (std::size_t i = where + 1; i < at_; ++i) {
      if (tokens_[i].is("[")) {
        i = behind_bracket(tokens_, i, at_) - 1;
      } else if (tokens_[i].is("inline")) {
        inline_part = true;
      } else if (tokens_[i].is("::")) {
        names_follow = true;
      } else if (tokens_[i].is_word() && names_follow) {
        if (!inline_part) scope.names.push_back(tokens_[i].text);
        names_follow = inline_part = false;
      }
    }
    scope.anonymous = scope.names.empty();
    if (is_inline) scope.names.clear();
    enter(std::move(scope));
  }
  std::vector<std::string> scope() const {
    std::vector<std::string> out;
    for (const Scope& s : scopes_) out.insert(out.end(), s.names.begin(), s.names.end());
    return out;
  }

  void declaration(std::size_t body, std::size_t body_end) {
    KernelDeclaration kernel;
    if (!read_declaration(tokens_, begin_, at_, kernel)) return;
    std::vector<std::string> names = scope();
    names.insert(names.end(), kernel.scope.begin(), kernel.scope.end());
    kernel.scope = std::move(names);
    kernel.defined = body_end > body;
    for (std::size_t i = body; i < body_end; ++i) {
      const std::string& word = tokens_[i].text;
      kernel.dynamic_shared |= word == "extern" && i + 1 < body_end && tokens_[i + 1].is("__shared__");
      kernel.grid_sync |= word == "this_grid" || word == "grid_group";
      kernel.dependent_launch |=
          word == "cudaGridDependencySynchronize" || word == "cudaTriggerProgrammaticLaunchCompletion";
    }
    out_.kernels.push_back(std::move(kernel));
  }
  void enumeration(std::size_t where, std::size_t behind) {
    std::size_t name = where + 1;
    while (name < at_ && (tokens_[name].is("class") || tokens_[name].is("struct"))) ++name;
    if (name >= at_ || !tokens_[name].is_word()) return;
    EnumDeclaration out;
    out.qualified = base::join(scope(), "::");
    out.qualified += (out.qualified.empty() ? "" : "::") + tokens_[name].text;
    for (const TokenRange& value : between_commas(tokens_, at_ + 1, behind - 1)) {
      if (value.begin < value.end && tokens_[value.begin].is_word())
        out.values.push_back(tokens_[value.begin].text);
    }
    if (!out.values.empty()) out_.enums.try_emplace(tokens_[name].text, std::move(out));
  }
  void statement() {
    if (find("__global__") != npos) return declaration(at_, at_);
    const auto word = [&](std::size_t i) {
      return begin_ + i < at_ ? tokens_[begin_ + i].text : std::string();
    };
    const auto range = [&](std::size_t from, std::size_t to) {
      return Tokens(tokens_.begin() + static_cast<std::ptrdiff_t>(from),
                    tokens_.begin() + static_cast<std::ptrdiff_t>(to));
    };
    if (word(0) == "using" && word(2) == "=" && at_ - begin_ > 3) {
      out_.aliases.try_emplace(word(1), range(begin_ + 3, at_));
    } else if (word(0) == "typedef" && at_ - begin_ > 2 && tokens_[at_ - 1].is_word()) {
      out_.aliases.try_emplace(tokens_[at_ - 1].text, range(begin_ + 1, at_ - 1));
    }
  }

  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
  const Tokens& tokens_;
  CudaSource& out_;
  std::vector<Scope> scopes_;
  std::size_t begin_ = 0, at_ = 0;  // start of the current declaration; current token
};

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto first = static_cast<unsigned char>(text[i]);
    if (first < 0x80) continue;
    const std::size_t more = first >= 0xf0 && first < 0xf5 ? 3 : first >= 0xe0 ? 2 : 1;
    if (first < 0xc2 || first > 0xf4 || text.size() - i <= more) return false;
    for (std::size_t k = 1; k <= more; ++k)
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return false;
    i += more;
  }
  return true;
}

/// TOML and JSON hold only UTF-8. Other bytes of a source usually stand in comments, so each becomes "?".
std::string ascii_of(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  return out;
}

/// Equal for two declarations of the same kernel.
std::string signature(const KernelDeclaration& kernel) {
  std::string out = kernel.qualified() + '<';
  for (const TemplateParameter& p : kernel.parameters)
    out += std::to_string(static_cast<int>(p.kind)) + joined(p.type) + ',';
  for (const FunctionParameter& a : kernel.arguments) out += joined(a.type) + ';';
  return out;
}

/// Merges two declarations: the line comes from the definition, a default from either one.
void merge(KernelDeclaration& into, const KernelDeclaration& other) {
  const bool takes_place = !into.defined && other.defined;
  KernelDeclaration merged = takes_place ? other : into;
  const KernelDeclaration& rest = takes_place ? into : other;
  for (std::size_t i = 0; i < merged.parameters.size(); ++i)
    if (merged.parameters[i].fallback.empty()) merged.parameters[i].fallback = rest.parameters[i].fallback;
  for (std::size_t i = 0; i < merged.arguments.size(); ++i)
    if (merged.arguments[i].fallback.empty()) merged.arguments[i].fallback = rest.arguments[i].fallback;
  if (merged.bounds.empty()) merged.bounds = rest.bounds;
  if (merged.cluster.empty()) merged.cluster = rest.cluster;
  into = std::move(merged);
}

}  // namespace

CudaSource read_cuda(std::string_view text, const Macros& macros) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark, which is no token
  CudaSource read, out;
  const std::string readable = is_utf8(text) ? std::string(text) : ascii_of(text);
  for (const Branches branches : {Branches::first, Branches::last}) {
    LexedSource lexed = lex(readable, branches, macros);
    Walk(lexed.tokens, read).run();
    for (std::string& name : lexed.includes) {
      if (std::find(read.includes.begin(), read.includes.end(), name) == read.includes.end())
        read.includes.push_back(std::move(name));
    }
    for (auto& macro : lexed.kernel_macros) read.kernel_macros.push_back(std::move(macro));
  }
  std::map<std::string, std::size_t> known;
  for (KernelDeclaration& kernel : read.kernels) {
    const auto [at, is_new] = known.try_emplace(signature(kernel), out.kernels.size());
    if (is_new)
      out.kernels.push_back(std::move(kernel));
    else
      merge(out.kernels[at->second], kernel);
  }
  std::stable_sort(out.kernels.begin(), out.kernels.end(),
                   [](const auto& a, const auto& b) { return a.line < b.line; });
  out.enums = std::move(read.enums);
  out.aliases = std::move(read.aliases);
  out.includes = std::move(read.includes);
  out.kernel_macros = std::move(read.kernel_macros);
  return out;
}

std::string KernelDeclaration::qualified() const {
  std::string out;
  for (const std::string& part : scope) out += part + "::";
  return out + name;
}

std::string KernelDeclaration::text() const {
  const auto list = [](const auto& items) {
    std::vector<std::string> out;
    for (const auto& item : items) out.push_back(item.declared);
    return base::join(out, ", ");
  };
  return qualified() + (is_template ? '<' + list(parameters) + '>' : "") + '(' + list(arguments) + ')';
}

std::vector<const KernelDeclaration*> kernels_named(const CudaSource& source, std::string_view wanted) {
  const bool whole = wanted.starts_with("::");
  if (whole) wanted.remove_prefix(2);
  std::vector<const KernelDeclaration*> out;
  for (const KernelDeclaration& kernel : source.kernels) {
    const std::string name = kernel.qualified();
    if (name == wanted || (!whole && name.ends_with("::" + std::string(wanted)))) out.push_back(&kernel);
  }
  return out;
}

}  // namespace kiln::cli
