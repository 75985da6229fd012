// The kernels that a CUDA source declares, read from its text alone. It is no C++ front end: it does not
// expand macros with parameters, and it reads no included files.
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
  std::string name;  ///< empty: it has no name
  Tokens type;       ///< type of a value parameter: "int", "ns::Mode", "auto"
  Tokens fallback;   ///< its default; empty: no default
  std::string declared;
};

struct FunctionParameter {
  std::string name;  ///< empty: it has no name
  Tokens type;       ///< without the parameter's own qualifiers, attributes and macros
  Tokens fallback;
  bool grid_constant = false;
  bool pack = false;
  std::string declared;
};

struct KernelDeclaration {
  std::vector<std::string> scope;  ///< namespaces in its qualified name, without anonymous and inline ones
  std::string name;
  int line = 0;
  bool is_template = false, defined = false;
  std::vector<TemplateParameter> parameters;
  std::vector<FunctionParameter> arguments;
  /// Arguments of __launch_bounds__ and __cluster_dims__ as written.
  std::vector<std::string> bounds, cluster;
  /// Features that its body uses; false when this source has no body.
  bool dynamic_shared = false, grid_sync = false, dependent_launch = false;

  std::string qualified() const;  ///< "ns::inner::kernel"
  std::string text() const;       ///< "ns::kernel<typename T, int N>(float* x, int n)"
};

struct EnumDeclaration {
  std::string qualified;  ///< "ns::Mode"
  std::vector<std::string> values;
};

struct CudaSource {
  std::vector<KernelDeclaration> kernels;        ///< ascending by line
  std::map<std::string, EnumDeclaration> enums;  ///< by their unqualified names
  std::map<std::string, Tokens> aliases;         ///< types without template parameters, by unqualified name
  std::vector<std::string> includes;
  Macros kernel_macros;  ///< macros whose text contains __global__
};

/// Never throws because of the text. `macros` stay defined whatever the text defines.
CudaSource read_cuda(std::string_view text, const Macros& macros = {});

/// Kernels that `wanted` names: "kernel", "inner::kernel", "::ns::inner::kernel".
std::vector<const KernelDeclaration*> kernels_named(const CudaSource& source, std::string_view wanted);

}  // namespace kiln::cli
