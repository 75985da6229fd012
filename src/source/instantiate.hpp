// From a template and a caller's values to what the compiler is asked for.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/arch.hpp"
#include "kiln/specialization.hpp"
#include "source/catalog.hpp"

namespace kiln::source {

/// Every parameter resolved and checked. `slots` has the layout of Manifest::slots, with parameters, derives
/// and arch filled in and the rest zero.
struct Resolved {
  Specialization specialization;
  std::vector<std::int64_t> slots;
  base::Arch arch;
  /// Of the call that it was resolved from: the parameters, by name, that a tuned choice gives or may give,
  /// and that a row of a plan says were `tuned`. Undecided: nobody has looked for a choice, and these are all
  /// that the call left to their defaults; a row leaves them open, too.
  std::vector<std::string> open{};
  bool undecided = false;
};

/// Positional values (shorter lists and unset values take defaults). Checks kinds, whitelists, arch and every
/// [[require]] that needs no argument. Throws Error(unknown_parameter | invalid_value | requirement |
/// unsupported_arch | invalid_argument); the message names template, parameter, value and what is allowed.
enum class Archs { supported, any };  ///< any: the manifest's [template] arch is not looked at
Resolved resolve(const Manifest& manifest, std::span<const Value> values, base::Arch arch,
                 Archs archs = Archs::supported);
/// Its parameters, derives and arch in the layout of `manifest`: the one it was resolved for, or one of its
/// entries. The rest is zero.
std::vector<std::int64_t> slots_of(const Manifest& manifest, const Resolved& resolved);
bool supports(const Manifest& manifest, base::Arch arch) noexcept;
/// Named values into manifest order. Throws Error(unknown_parameter) for unknown and repeated names, with the
/// nearest name.
std::vector<Value> positional(const Manifest& manifest, std::span<const NamedValue> named);
/// "T=bf16" pieces as the command line has them, also as three words "T", "=",
/// "bf16"; the returned views point into `pieces`.
std::vector<NamedValue> parse_assignments(std::span<const std::string> pieces);

/// A [[require]]'s message with each {NAME} replaced by its value: parameters in canonical
/// text, pointers in hexadecimal, floating-point arguments as `floats` (by argument) has them, the rest as
/// integers.
std::string render_message(const Manifest& manifest, std::string_view message,
                           std::span<const std::int64_t> slots, std::span<const double> floats = {});

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

  const Manifest& manifest() const noexcept { return origin->manifest.on(resolved.arch); }
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
