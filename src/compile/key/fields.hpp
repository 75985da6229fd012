// The fields of a key text: one table of their labels and of the words for people. The key maker writes by
// this table; show, why, diff and bundle read by it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace kiln::compile {

/// The version of the grammar of key texts. Version 2: templates lie in families, and
/// their parameters changed.
inline constexpr std::string_view kKeySchema = "2";

/// In the order of a key text. Only keys of tuned choices have `tune` and `device`.
enum class FieldId : std::uint8_t {
  version,
  unit,
  arch,
  source,
  include,
  replace,
  host_code,
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
  /// The kind of a field's values. It decides how two values are compared and how a difference is described.
  enum class Is : std::uint8_t {
    value,      ///< one text: "arch is sm_80 here and sm_90a there"
    named,      ///< a name and a text: "the entry point reduce is ..."
    parameter,  ///< a name and a text, where the name alone is clear: "H is 4096 here and 8192 there"
    source,     ///< a digest
    file,       ///< a name and a digest; an include also has its includer and its spelling
    option,     ///< an option of the compiler, with its value
    library,    ///< an identity (toolchain/library_identity.hpp)
    format,     ///< the version of one of kiln's grammars
    section,    ///< begins a section, has no value of its own
  };
  FieldId id;
  std::string_view label;    ///< as the key text has it
  std::string_view subject;  ///< the beginning of a sentence about the field
  Is is;
  /// Order in which differences are told: fields with a low rank explain more. No two
  /// fields have the same rank.
  int rank;
  /// The amount that a difference in this field adds to the distance between a request and an entry. 0:
  /// nobody asks for this field, it is part of what an image is made of.
  int asked = 0;
  bool derived = false;  ///< usually follows from the parameters
};

inline constexpr FieldKind kFields[] = {
    {FieldId::version, "kiln-key", "the version of the key", FieldKind::Is::format, 17},
    {FieldId::unit, "template", "template", FieldKind::Is::value, 0},
    {FieldId::arch, "arch", "arch", FieldKind::Is::value, 2, 3},
    {FieldId::source, "source", "the template's source", FieldKind::Is::source, 3},
    {FieldId::include, "include", "", FieldKind::Is::file, 4},
    {FieldId::replace, "replace", "the header in the place of", FieldKind::Is::named, 16},
    {FieldId::host_code, "host-code", "the rule for host code", FieldKind::Is::value, 21},
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
/// The field with this label; null for a label of another version of kiln.
constexpr const FieldKind* field_of(std::string_view label) noexcept {
  const auto* found = std::find_if(std::begin(kFields), std::end(kFields),
                                   [&](const FieldKind& kind) { return kind.label == label; });
  return found == std::end(kFields) ? nullptr : found;
}
/// True for the label of a field of this kind.
constexpr bool is(std::string_view label, FieldKind::Is what) noexcept {
  const FieldKind* kind = field_of(label);
  return kind && kind->is == what;
}
constexpr bool is(std::string_view label, FieldId id) noexcept { return label == label_of(id); }

}  // namespace kiln::compile
