// From a template and a caller's values to what the compiler is asked for.
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

/// A name of the manifest and the C++ text that it stands for.
struct NamedText {
  std::string name, cpp;
};

/// The translation unit's recipe, before the include closure is known.
struct Instantiation {
  std::shared_ptr<const Template> origin;
  Which which = Which::kernel;
  Resolved resolved;
  std::string unit;  ///< "rms_norm" or "rms_norm@reference": the template name in key and program name
  std::string name_expression;                       ///< of the entry point that comes first
  std::vector<NamedText> entries, globals, exports;  ///< further entry points, [[global]], [export]
  /// The manifest's for this arch, its texts filled in; preinclude has the headers that values need, too.
  CompileSpec compile;
  /// That in order: -std=..., -DNDEBUG, -default-device, --minimal, -D..., options, --pre-include=...
  std::vector<std::string> options;
  std::string source_name;  ///< as the manifest has it, relative to the template's directory
  /// Bytes of the template's source file, with #include lines for `preinclude` never added to it.
  std::string source;

  const Manifest& manifest() const noexcept { return variant_for(origin->manifest, resolved.arch); }
  /// What is compiled behind `source`: a variable of the image for each export.
  std::string epilogue() const;
  /// C++ names that the compiler is asked for: entry points in order, then globals.
  std::vector<std::string> name_expressions() const;
};

/// The variable that holds export number `i`, as the image's symbol table names it.
std::string export_symbol(std::size_t i);

/// Reads the source. Throws as resolve, and Error(source) when the file is missing or has no such entry point
/// to read.
Instantiation instantiate(std::shared_ptr<const Template> origin, Resolved resolved,
                          Which which = Which::kernel);

/// The same source and options, asked for one other entry point alone: `text` is C++ with {P}.
Instantiation with_entry_point(Instantiation unit, const std::string& text);

}  // namespace kiln::source
