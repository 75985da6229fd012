// The kernels that a CUDA source declares, read from its outline. The compiler tells the types later, so a
// declaration gives only names, and the text of each parameter.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "overlay/outline.hpp"

namespace kiln::cli {

using Macros = std::vector<std::pair<std::string, std::string>>;
using source::Token;
using Tokens = std::vector<Token>;

struct TemplateParameter {
  enum class Kind { type, value, pack, template_template };
  Kind kind = Kind::type;
  std::string name;      ///< empty: it has no name
  std::string type;      ///< of a value: "int", "ns::Mode"
  Tokens fallback;       ///< its default
  std::string declared;  ///< its whole text
};

struct FunctionParameter {
  std::string name;  ///< empty: it has no name
  std::string type;  ///< its text without name, default and attributes
  Tokens fallback;
  bool pack = false;
  std::string declared;
};

struct KernelDeclaration {
  std::string scope, name;  ///< "outer::inner", "kernel"
  std::string path;         ///< the file
  int line = 0;             ///< of the name
  bool is_template = false, defined = false;
  std::vector<TemplateParameter> parameters;
  std::vector<FunctionParameter> arguments;
  std::vector<Tokens> bounds, cluster;  ///< of __launch_bounds__ and __cluster_dims__
  bool dynamic_shared = false, grid_sync = false, dependent_launch = false;
  std::map<std::string, std::set<std::string>> members;  ///< what the text asks of a type: T::member
  std::set<std::string> called;                          ///< names that the text calls: NAME(...)

  std::string qualified() const { return scope.empty() ? name : scope + "::" + name; }
  std::string text() const;  ///< "ns::kernel<typename T, int N>(float* x, int n)"
};

struct EnumDeclaration {
  std::string qualified;
  std::vector<std::string> values;
};

/// Where the text has KERNEL<...> with arguments that mean the same everywhere.
struct Evidence {
  std::string place;                ///< "norm.cu:374"
  std::vector<std::string> values;  ///< in order; empty: it depends on its surroundings
};

/// The texts that belong to one source: the file itself first, then the project's headers. Views of the
/// texts stay valid as long as this object.
class SourceTexts {
 public:
  void add(const std::string& path, std::string text);
  /// `define` are macros of the command line.
  std::vector<KernelDeclaration> kernels(const Macros& define) const;
  std::map<std::string, EnumDeclaration> enums() const;
  /// Paths and tokens, in the order of add().
  std::vector<std::pair<std::string_view, const Tokens*>> tokens() const;
  /// The instantiations of the kernel that the texts show.
  std::vector<Evidence> instantiations(const KernelDeclaration& kernel) const;

 private:
  struct Text {
    std::string path, text;
    Tokens tokens;
    std::vector<source::Declaration> declarations;
  };
  std::deque<Text> texts_;
  std::set<std::string_view> brace_macros_;  ///< of the texts so far: macros that open or close a scope
};

/// The tokens as text, with as few blanks as possible.
std::string joined(const Tokens& tokens, std::size_t begin, std::size_t end);
inline std::string joined(const Tokens& tokens) { return joined(tokens, 0, tokens.size()); }

/// Kernels that `wanted` names: "kernel", "inner::kernel", "::ns::inner::kernel".
std::vector<const KernelDeclaration*> kernels_named(const std::vector<KernelDeclaration>& kernels,
                                                    std::string_view wanted);
/// True when several of the kernels have the name of this one.
bool is_overloaded(const std::vector<KernelDeclaration>& kernels, const KernelDeclaration& kernel);

}  // namespace kiln::cli
