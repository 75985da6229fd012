// From a template and a caller's values to the request that the compiler gets.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/arch.hpp"
#include "instantiate/message.hpp"
#include "instantiate/resolve.hpp"
#include "kiln/specialization.hpp"
#include "manifest/catalog.hpp"

namespace kiln::source {

enum class Which { kernel, reference };

/// The arguments that a kernel gets. A reference gets the call's arguments.
std::vector<PassedArgument> passed_to(const Manifest& manifest, Which which);

/// A name of the manifest and the C++ text that it stands for.
struct NamedText {
  std::string name, cpp;
};

/// Everything that a translation unit is made of, before the include closure is known.
struct Instantiation {
  std::shared_ptr<const Template> origin;
  Which which = Which::kernel;
  Resolved resolved;
  /// "rms_norm" or "rms_norm@reference": the name in the key and in the compiler's program name.
  std::string unit;
  std::string name_expression;                       ///< C++ name of the first entry point
  std::vector<NamedText> entries, globals, exports;  ///< further entry points, [[global]], [export]
  /// The manifest's [compile] for this arch, with its texts filled in. `preinclude` also has the headers
  /// that the values need.
  CompileSpec compile;
  /// Compiler options made of `compile`, in this order: -std=..., -DNDEBUG, -default-device, --minimal,
  /// -D..., its own options, --pre-include=...
  std::vector<std::string> options;
  std::string source_name;  ///< as in the manifest, relative to the template's directory
  /// Bytes of the template's source file. The headers of `preinclude` are never added to
  /// it as #include lines.
  std::string source;

  const Manifest& manifest() const noexcept { return variant_for(origin->manifest, resolved.arch); }
  /// C++ text that is compiled after `source`. It defines a variable of the image for each export.
  std::string epilogue() const;
  /// C++ names whose lowered names the compiler must give: entry points in order, then globals.
  std::vector<std::string> name_expressions() const;
};

/// Name of the variable that holds export number `i`, as in the image's symbol table.
std::string export_symbol(std::size_t i);

/// Reads the template's source. Throws Error(source) when the source cannot be read, when there is no
/// [reference], or when a filled-in text is too long.
Instantiation instantiate(std::shared_ptr<const Template> origin, Resolved resolved,
                          Which which = Which::kernel);

/// `unit` with one other entry point as its only one; source and options stay. `text` is a C++ name with {P}.
Instantiation with_entry_point(Instantiation unit, const std::string& text);

}  // namespace kiln::source
