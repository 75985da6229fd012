// The draft of a kernel's manifest: parameters, arguments and launch. A `todo` marks what the declaration
// leaves open.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/kiln/import/source.hpp"

namespace kiln::cli {

struct ImportParameter {
  enum class Kind { dtype, integer, boolean, enumeration, type };
  Kind kind = Kind::integer;
  std::string name, declared;  ///< declared: the text in the source
  /// Name -> C++ text; for a dtype only the name is used.
  std::vector<std::pair<std::string, std::string>> choices;
  std::int64_t least = 0, most = 65536;
  std::string fallback;  ///< its default as TOML; empty: no default
  std::string value;     ///< the value that proves the manifest; empty: the default
  std::string todo;
};
const char* name_of(ImportParameter::Kind kind) noexcept;

struct ImportArgument {
  std::string name, type, declared;
  bool writes = false;          ///< a pointer to non-const
  bool sized_by_image = false;  ///< a struct whose size comes from the compiled image
  bool is_enum = false;         ///< an enum of this source, passed as its number
  std::string value;            ///< its default when that is a number
  std::string todo;
};

/// Options and shims that NVRTC needs beside the source.
struct Measures {
  /// nvcc, unmark_host: pre-included shims with these names. Both need `shim`.
  bool shim = false, default_device = false, int128 = false, nvcc = false, unmark_host = false, cpp20 = false;
  friend bool operator==(const Measures&, const Measures&) = default;
};

struct ImportDraft {
  std::string kernel;  ///< the declaration, for messages
  int line = 0;
  std::string name, instantiate;
  std::vector<ImportParameter> parameters;
  std::vector<ImportArgument> arguments;
  /// Source parameters, in order, that keep the source's own default.
  std::vector<std::string> left_out;
  std::vector<std::string> block, cluster;  ///< expressions; an empty block is not known
  bool dynamic_shared = false, grid_sync = false, dependent_launch = false;
  Measures measures;
  std::vector<std::string> include_dirs;
  Macros define;
};

using Assignments = std::vector<std::pair<std::string, std::string>>;

/// Drafts a manifest. `given` holds the values of P=V. Throws Error(unknown_parameter |
/// invalid_value) for a bad value. Throws Error(source) for kernels that cannot be imported: with
/// packs or template template parameters.
ImportDraft draft_of(const KernelDeclaration& kernel, const CudaSource& source, bool overloaded,
                     const Assignments& given);

/// Makes an identifier of any text: "ns::Mode<4>" -> "ns_Mode_4".
std::string identifier_of(const std::string& text);
/// The tokens as an expression of manifests over the parameters in `known`; empty when they are
/// no such expression.
std::string expression_of(const Tokens& tokens, const std::vector<ImportParameter>& known);

/// The value of such an expression when it reads no parameter.
std::optional<std::int64_t> constant_of(const std::string& text);

}  // namespace kiln::cli
