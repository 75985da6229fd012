// What a manifest will say of a kernel: parameters, arguments and launch, each with what its declaration does
// not tell.
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
  std::string name, declared;  ///< declared: as in the source
  /// Name -> C++ text; of a dtype the names alone.
  std::vector<std::pair<std::string, std::string>> choices;
  std::int64_t least = 0, most = 65536;
  std::string fallback;  ///< its default as TOML; empty: none
  std::string value;     ///< what is compiled to prove it; empty: the default
  std::string todo;
};
const char* name_of(ImportParameter::Kind kind) noexcept;

struct ImportArgument {
  std::string name, type, declared;
  bool writes = false;          ///< a pointer to what is not const
  bool sized_by_image = false;  ///< a struct whose size the compiled image tells
  bool is_enum = false;         ///< of the same source, passed as its number
  std::string value;            ///< its default, where that is a number
  std::string todo;
};

/// What NVRTC needs beside the source, as far as anything does.
struct Measures {
  /// nvcc, unmark_host: pre-included shims of that name; they need `shim`.
  bool shim = false, default_device = false, int128 = false, nvcc = false, unmark_host = false, cpp20 = false;
  friend bool operator==(const Measures&, const Measures&) = default;
};

struct ImportDraft {
  std::string kernel;  ///< the declaration, for people
  int line = 0;
  std::string name, instantiate;
  std::vector<ImportParameter> parameters;
  std::vector<ImportArgument> arguments;
  /// Of the source, in order: left to its own default.
  std::vector<std::string> left_out;
  std::vector<std::string> block, cluster;  ///< expressions; block empty: not known
  bool dynamic_shared = false, grid_sync = false, dependent_launch = false;
  Measures measures;
  std::vector<std::string> include_dirs;
  Macros define;
};

using Assignments = std::vector<std::pair<std::string, std::string>>;

/// `given` are the values of P=V. Throws Error(unknown_parameter | invalid_value) for one of them, and
/// Error(source) with what cannot be imported: packs and template template parameters.
ImportDraft draft_of(const KernelDeclaration& kernel, const CudaSource& source, bool overloaded,
                     const Assignments& given);

/// An identifier made of any text: "ns::Mode<4>" is "ns_Mode_4".
std::string identifier_of(const std::string& text);
/// As an expression of manifests, over the parameters that are there already; empty when it is none.
std::string expression_of(const Tokens& tokens, const std::vector<ImportParameter>& known);

/// Of such an expression that reads no parameter.
std::optional<std::int64_t> constant_of(const std::string& text);

}  // namespace kiln::cli
