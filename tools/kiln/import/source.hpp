// The kernels that a CUDA source declares, read from its text alone. This is no C++ front end: what a macro
// with parameters makes is not seen, and nothing is looked up in included files.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/kiln/import/tokens.hpp"

namespace kiln::cli {

struct TemplateParameter {
  enum class Kind { type, value, pack, template_template };
  Kind kind = Kind::type;
  std::string name;  ///< empty: it has none
  Tokens type;       ///< of a value: "int", "ns::Mode", "auto"
  Tokens fallback;   ///< its default; empty: none
  std::string declared;
};

struct FunctionParameter {
  std::string name;  ///< empty: it has none
  Tokens type;       ///< without qualifiers of the parameter itself, attributes and macros
  Tokens fallback;
  bool grid_constant = false;
  bool pack = false;
  std::string declared;
};

struct KernelDeclaration {
  std::vector<std::string> scope;  ///< namespaces that its name is spelled with: no anonymous, no inline ones
  std::string name;
  int line = 0;
  bool is_template = false, defined = false;
  std::vector<TemplateParameter> parameters;
  std::vector<FunctionParameter> arguments;
  /// Of __launch_bounds__ and __cluster_dims__, as they are written.
  std::vector<std::string> bounds, cluster;
  /// What its body speaks of; false when it has none here.
  bool dynamic_shared = false, grid_sync = false, dependent_launch = false;

  std::string qualified() const;  ///< "ns::inner::kernel"
  std::string text() const;       ///< "ns::kernel<typename T, int N>(float* x, int n)"
};

struct EnumDeclaration {
  std::string qualified;  ///< "ns::Mode"
  std::vector<std::string> values;
};

struct CudaSource {
  std::vector<KernelDeclaration> kernels;        ///< by line
  std::map<std::string, EnumDeclaration> enums;  ///< by their bare names
  std::map<std::string, Tokens> aliases;         ///< bare names; of types, without parameters
  std::vector<std::string> includes;
  Macros kernel_macros;  ///< those that say __global__
};

/// Never throws for what the text holds.
/// `macros` are defined, whatever it says of them.
CudaSource read_cuda(std::string_view text, const Macros& macros = {});

/// Those that `wanted` names: "kernel", "inner::kernel", "::ns::inner::kernel".
std::vector<const KernelDeclaration*> kernels_named(const CudaSource& source, std::string_view wanted);

}  // namespace kiln::cli
