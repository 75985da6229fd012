// The kernels that a CUDA source declares. The compiler tells the types later, so a declaration gives only names,
// and the text of each parameter.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/kiln/import/texts.hpp"

namespace kiln::cli {

/// A parameter of a template or of a function.
struct DeclaredParameter {
  enum class Kind { value, type, pack, template_template };
  Kind kind = Kind::value;
  std::string name;      ///< empty: it has no name
  std::string type;      ///< without name, default and attributes: "int", "const float*", "ns::Mode"
  Tokens fallback;       ///< its default
  std::string declared;  ///< its whole text
};

/// Its tokens are views of the texts.
struct KernelDeclaration {
  std::string scope, name;  ///< "outer::inner", "kernel"
  std::string path;         ///< the file
  int line = 0;             ///< of the name, or of the macro that makes the declaration
  bool is_template = false, defined = false;
  std::vector<DeclaredParameter> parameters, arguments;
  std::vector<Tokens> bounds, cluster;  ///< of __launch_bounds__ and __cluster_dims__
  bool dynamic_shared = false, grid_sync = false, dependent_launch = false;
  std::map<std::string, std::set<std::string>> members;  ///< what the text asks of a type: T::member
  std::set<std::string> called;                          ///< names that the text calls: NAME(...)

  std::string qualified() const { return scope.empty() ? name : scope + "::" + name; }
  std::string text() const;  ///< "ns::kernel<typename T, int N>(float* x, int n)"
};

/// Each kernel once: its definition, or its first declaration.
std::vector<KernelDeclaration> kernels_of(const SourceTexts& texts);

/// The tokens as text, with as few blanks as possible.
std::string joined(const Tokens& tokens);

/// Kernels that `wanted` names: "kernel", "inner::kernel", "::ns::inner::kernel".
std::vector<const KernelDeclaration*> kernels_named(const std::vector<KernelDeclaration>& kernels,
                                                    std::string_view wanted);
/// True when several of the kernels have the name of this one.
bool is_overloaded(const std::vector<KernelDeclaration>& kernels, const KernelDeclaration& kernel);

}  // namespace kiln::cli
