// The fields of a key text: the one table of their labels, and of what people are told about each. The key
// maker writes by it; show, why, diff and bundle read by it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace kiln::compile {

/// The version of the grammar of key texts. 2: templates lie in families, and their parameters changed.
inline constexpr std::string_view kKeySchema = "2";

/// In the order in which a key text has them; `tune` and `device` are in the keys of tuned choices alone.
enum class FieldId : std::uint8_t {
  version,
  unit,
  arch,
  source,
  include,
  replace,
  name,
  entry,
  global,
  exported,
  parameter,
  option,
  tune,
  device,
  toolchain,
  facts,
  compiler,
  builtins,
  kiln_option,
  header,
  project_header,
};

struct FieldKind {
  /// What its values are, which decides how two of them are compared and how a difference is said.
  enum class Is : std::uint8_t {
    value,      ///< one text: "arch is sm_80 here and sm_90a there"
    named,      ///< a name and a text: "the entry point reduce is ..."
    parameter,  ///< a name and a text, and the name says it all: "H is 4096 here and 8192 there"
    source,     ///< a digest
    file,       ///< a name and a digest, or for an include also who includes it and how
    option,     ///< an option of the compiler, with its value
    library,    ///< a build id
    format,     ///< the version of a grammar of kiln's own
    section,    ///< begins a section, and says nothing
  };
  FieldId id;
  std::string_view label;    ///< as the key text has it
  std::string_view subject;  ///< what a sentence about it begins with
  Is is;
  /// The lower, the more it explains: differences are told in this order. None is told twice.
  int rank;
  /// What a difference of it adds to how far a request is from an entry. 0: it is part of what an image is
  /// made of, and nobody asks for it.
  int asked = 0;
  bool derived = false;  ///< follows from parameters, as a rule
};

inline constexpr FieldKind kFields[] = {
    {FieldId::version, "kiln-key", "the version of the key", FieldKind::Is::format, 17},
    {FieldId::unit, "template", "template", FieldKind::Is::value, 0},
    {FieldId::arch, "arch", "arch", FieldKind::Is::value, 2, 3},
    {FieldId::source, "source", "the template's source", FieldKind::Is::source, 3},
    {FieldId::include, "include", "", FieldKind::Is::file, 4},
    {FieldId::replace, "replace", "the header in the place of", FieldKind::Is::named, 16},
    {FieldId::name, "name", "the name expression", FieldKind::Is::value, 12, 0, true},
    {FieldId::entry, "entry", "the entry point", FieldKind::Is::named, 13, 0, true},
    {FieldId::global, "global", "the global", FieldKind::Is::named, 14, 0, true},
    {FieldId::exported, "export", "the export", FieldKind::Is::named, 15, 0, true},
    {FieldId::parameter, "parameter", "", FieldKind::Is::parameter, 1, 2},
    {FieldId::option, "option", "option", FieldKind::Is::option, 5},
    {FieldId::tune, "tune", "tune", FieldKind::Is::named, 19},
    {FieldId::device, "device", "device", FieldKind::Is::value, 18},
    {FieldId::toolchain, "toolchain", "toolchain", FieldKind::Is::section, 20},
    {FieldId::facts, "facts", "the version of kiln's facts", FieldKind::Is::format, 9},
    {FieldId::compiler, "nvrtc", "NVRTC", FieldKind::Is::library, 6},
    {FieldId::builtins, "builtins", "NVRTC's builtins library", FieldKind::Is::library, 7},
    {FieldId::kiln_option, "kiln-option", "kiln's own option", FieldKind::Is::option, 8},
    {FieldId::header, "header", "", FieldKind::Is::file, 10},
    {FieldId::project_header, "project-header", "", FieldKind::Is::file, 11},
};

static_assert(
    [] {
      for (std::size_t i = 0; i < std::size(kFields); ++i)
        if (kFields[i].id != static_cast<FieldId>(i)) return false;
      return std::size(kFields) == static_cast<std::size_t>(FieldId::project_header) + 1;
    }(),
    "a row for each FieldId, in their order");

static_assert(
    [] {
      for (const FieldKind& one : kFields)
        for (const FieldKind& other : kFields)
          if (one.id != other.id && one.rank == other.rank) return false;
      return true;
    }(),
    "a rank for each field");

constexpr const FieldKind& field(FieldId id) noexcept { return kFields[static_cast<std::size_t>(id)]; }
constexpr std::string_view label_of(FieldId id) noexcept { return field(id).label; }
/// Null for a label of another version of kiln.
constexpr const FieldKind* field_of(std::string_view label) noexcept {
  const auto* found = std::find_if(std::begin(kFields), std::end(kFields),
                                   [&](const FieldKind& kind) { return kind.label == label; });
  return found == std::end(kFields) ? nullptr : found;
}
/// Whether a label is that of a field of this kind.
constexpr bool is(std::string_view label, FieldKind::Is what) noexcept {
  const FieldKind* kind = field_of(label);
  return kind && kind->is == what;
}
constexpr bool is(std::string_view label, FieldId id) noexcept { return label == label_of(id); }

}  // namespace kiln::compile
