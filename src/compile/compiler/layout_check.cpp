#include "compile/compiler/layout_check.hpp"

#include "kiln/error.hpp"

namespace kiln::compile {

void check_layout(const source::Manifest& manifest, const EntryFacts& facts, const std::string& what) {
  const auto& declared = manifest.arguments;
  const auto fail = [&](const std::string& why) { throw Error(Errc::manifest, what + ": " + why); };
  if (declared.size() != facts.arguments.size()) {
    fail("the manifest declares " + std::to_string(declared.size()) + " arguments, and the kernel has " +
         std::to_string(facts.arguments.size()) + ": write one [[arg]] for each, in their order");
  }
  for (const ArgumentFact& argument : facts.arguments) {
    const source::ArgumentSpec& a = declared.at(argument.ordinal);
    if (a.type.size() == argument.size || a.type.size() == 0) continue;
    fail("argument " + std::to_string(argument.ordinal) + " '" + a.name + "' is " +
         a.type.to_string(manifest.parameters) + " of " + std::to_string(a.type.size()) +
         " bytes in the manifest, and has " + std::to_string(argument.size) +
         " in the kernel: write type = \"struct<" + std::to_string(argument.size) +
         ">\", or \"struct\" for the size that the image has");
  }
}

void check_layouts(const source::Instantiation& unit, const Facts& facts) {
  const source::Manifest& manifest = unit.manifest();
  const std::string what = unit.resolved.specialization.to_string();
  if (!manifest.arguments.empty()) check_layout(manifest, facts, what);
  for (const EntryFacts& entry : facts.entries) {
    const source::Manifest* of = entry_named(manifest, entry.entry);
    if (of && !of->arguments.empty()) check_layout(*of, entry, what + ", kernel '" + entry.entry + '\'');
  }
}

}  // namespace kiln::compile
