#include "manifest/family/reader.hpp"

#include <string>
#include <vector>

#include "base/quote.hpp"
#include "base/text.hpp"

namespace kiln::source {
namespace {

/// The argument that picks the member.
int read_by(const Manifest& m, const TableReader& reader) {
  const std::string name = reader.need_line("by");
  std::vector<std::string> known;
  for (const ArgumentSpec& a : m.arguments)
    if (is_integer(a.type.kind) && a.type.handle == ArgumentType::Handle::none && !a.optional)
      known.push_back(a.name);
  const std::string allowed =
      "; arguments that may pick the member: " + (known.empty() ? "none" : base::join(known, " "));
  const int found = argument_index(m, name);
  if (found < 0)
    reader.fail("by", base::quote(name) + " is no argument" + base::did_you_mean(name, known) + allowed);
  const ArgumentSpec& argument = m.arguments[static_cast<std::size_t>(found)];
  if (!is_integer(argument.type.kind) || argument.type.handle != ArgumentType::Handle::none)
    reader.fail("by", base::quote(name) + " is " + argument.type.to_string(m.parameters) +
                          ", and the member is picked by an integer" + allowed);
  if (argument.optional)
    reader.fail("by", base::quote(name) + " is optional, and every launch must pick a member" + allowed);
  return found;
}

/// The parameter whose values are the edges.
int read_parameter(const Manifest& m, const TableReader& reader) {
  const std::string name = reader.need_line("parameter");
  const int found = parameter_index(m, name);
  if (found < 0) {
    reader.fail("parameter", base::quote(name) + " is no parameter" +
                                 base::did_you_mean(name, parameter_names(m)) +
                                 "; known: " + base::join(parameter_names(m), " ") +
                                 "; declare it as kind = \"int\" with the edges as values");
  }
  const ParameterSpec& spec = m.parameters[static_cast<std::size_t>(found)];
  if (spec.kind != ParameterKind::integer || spec.choices.empty()) {
    reader.fail("parameter",
                base::quote(name) + " is " +
                    (spec.kind == ParameterKind::integer ? "an int with a range"
                                                         : "of kind " + std::string(to_string(spec.kind))) +
                    "; its values are the edges of the members, so it must be an int with a list "
                    "such as values = [8, 16, 32]");
  }
  if (!spec.tune.empty())
    reader.fail("parameter", base::quote(name) + " has tune, and a launch picks its value: remove tune");
  return found;
}

FamilyEdges edges_of(const ParameterSpec& spec, const TableReader& reader) {
  std::vector<std::int64_t> out;
  const std::string values = "the values of " + base::quote(spec.name);
  for (const auto& choice : spec.choices) {
    if (choice.value < 1)
      reader.fail("parameter", values + " are edges, and must be 1 or more; " + choice.name + " is not");
    if (!out.empty() && choice.value <= out.back()) {
      reader.fail("parameter", values + " must ascend, because each is the greatest value of " +
                                   "its member; " + choice.name + " follows " + std::to_string(out.back()));
    }
    out.push_back(choice.value);
  }
  if (out.size() > FamilyEdges::kMost)
    reader.fail("parameter", values + " are " + std::to_string(out.size()) + " members; at most " +
                                 std::to_string(FamilyEdges::kMost));
  return FamilyEdges(std::move(out));
}

}  // namespace

void read_family(Draft& draft, const TableReader& root) {
  const TomlValue* found = root.find("family");
  if (!found) return;
  const TableReader reader(*found, "[family]", root.file(), {"by", "parameter"});
  FamilySpec out;
  out.by = read_by(draft.out, reader);
  out.parameter = read_parameter(draft.out, reader);
  out.edges = edges_of(draft.out.parameters[static_cast<std::size_t>(out.parameter)], reader);
  draft.out.family = std::move(out);
}

}  // namespace kiln::source
