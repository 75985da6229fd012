#include "tools/kiln/store/key/fields.hpp"

#include <set>
#include <tuple>

#include "compile/key/fields.hpp"
#include "compile/key/key.hpp"
#include "tools/kiln/cli/outcome.hpp"

namespace kiln::cli {
namespace {

using compile::FieldId;
using Is = compile::FieldKind::Is;

constexpr std::size_t kFieldIndent = 17, kDigits = 16;

/// Labels of fields whose last value is a digest. Long digests are cut, because no one compares them by eye.
bool ends_with_digest(const std::string& label) {
  return compile::is(label, Is::source) || compile::is(label, Is::file);
}

std::string text_of(const compile::KeyField& field, bool full) {
  if (compile::is(field.label, FieldId::include) && field.values.size() == 4) {
    const auto& [includer, spelling, symbolic, digest] =
        std::tie(field.values[0], field.values[1], field.values[2], field.values[3]);
    if (!full) return symbolic + "  " + digest.substr(0, kDigits);
    return spelling + " -> " + symbolic + "  " + digest + (includer.empty() ? "" : "  from " + includer);
  }
  std::string out;
  for (std::size_t i = 0; i < field.values.size(); ++i) {
    const bool cut = !full && ends_with_digest(field.label) && i + 1 == field.values.size();
    out += (i ? "  " : "") + (cut ? field.values[i].substr(0, kDigits) : field.values[i]);
  }
  return out;
}

}  // namespace

void print_key_fields(std::string_view key_text, bool full) {
  std::size_t headers = 0;
  std::string last;
  std::set<std::string> included;
  for (const compile::KeyField& field : compile::parse_key_text(key_text)) {
    if (compile::is(field.label, FieldId::header) && !full) {
      ++headers;
      continue;
    }
    if (compile::is(field.label, FieldId::include) && !full && field.values.size() == 4 &&
        !included.insert(field.values[2]).second)
      continue;
    if (compile::is(field.label, FieldId::toolchain))
      print("\n"), print_heading("With the toolchain");
    else
      print_definition(field.label == last ? "" : field.label, text_of(field, full), kFieldIndent);
    last = field.label;
  }
  if (headers)
    print_definition("headers", counted(headers, "file") + " of the toolkit (--full lists them)",
                     kFieldIndent);
}

static Json entry_json(const compile::EntryFacts& f) {
  Json out{{"entry", f.entry.empty() ? Json(nullptr) : Json(f.entry)},
           {"name_expression", f.name_expression},
           {"lowered_name", f.lowered_name},
           {"registers", f.registers},
           {"spill_bytes", f.spill_bytes()},
           {"shared_bytes", f.shared_bytes},
           {"stack_bytes", f.stack_bytes},
           {"max_threads", f.max_threads},
           {"required_block", f.required_block[0] ? Json(f.required_block) : Json(nullptr)},
           {"cluster", f.cluster[0] ? Json(f.cluster) : Json(nullptr)},
           {"performance_warnings", f.performance_warnings},
           {"arguments", Json::array()}};
  for (const auto& a : f.arguments) out["arguments"].push_back({{"ordinal", a.ordinal}, {"size", a.size}});
  return out;
}

void add_symbols(Json& out, const compile::Facts& f) {
  out["entries"] = Json::array();
  for (const compile::EntryFacts& entry : f.entries) out["entries"].push_back(entry_json(entry));
  out["globals"] = Json::object();
  for (const compile::GlobalFact& g : f.globals)
    out["globals"][g.name] = {{"lowered_name", g.lowered_name}, {"bytes", g.bytes}};
  out["exports"] = Json::object();
  for (const compile::ExportFact& e : f.exports) out["exports"][e.name] = e.value;
}

void print_symbols(const compile::Facts& f, std::size_t indent) {
  for (const compile::EntryFacts& e : f.entries)
    print_definition("kernel " + e.entry, e.name_expression + ": " + resources_of(e), indent);
  for (const compile::GlobalFact& g : f.globals)
    print_definition("global " + g.name, human_bytes(g.bytes), indent);
  for (const compile::ExportFact& e : f.exports)
    print_definition("export " + e.name, std::to_string(e.value), indent);
}

void add_details(Json& out, const compile::Facts& f, std::string_view key_text) {
  out["name_expression"] = f.name_expression;
  out["lowered_name"] = f.lowered_name;
  add_symbols(out, f);
  out["stack_bytes"] = f.stack_bytes;
  out["max_threads"] = f.max_threads;
  out["required_block"] = f.required_block[0] ? Json(f.required_block) : Json(nullptr);
  out["cluster"] = f.cluster[0] ? Json(f.cluster) : Json(nullptr);
  out["arguments"] = Json::array();
  for (const auto& a : f.arguments) out["arguments"].push_back({{"ordinal", a.ordinal}, {"size", a.size}});
  out["frontend_ms"] = f.frontend_ms;
  out["nvvm_ms"] = f.nvvm_ms;
  out["ptxas_ms"] = f.ptxas_ms;
  out["performance_warnings"] = f.performance_warnings;
  out["log"] = f.log;
  out["key_fields"] = Json::array();
  for (const compile::KeyField& field : compile::parse_key_text(key_text)) {
    out["key_fields"].push_back({{"label", field.label}, {"values", field.values}});
  }
}

}  // namespace kiln::cli
