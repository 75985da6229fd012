#include "compile/compiler/layout_check.hpp"

#include "kiln/error.hpp"

namespace kiln::compile {

void check_layout(const source::Manifest& manifest, const std::vector<source::PassedArgument>& passed,
                  const EntryFacts& facts, const std::string& what) {
  using From = source::PassedArgument::From;
  const auto fail = [&](const std::string& why) { throw Error(Errc::manifest, what + ": " + why); };
  if (passed.size() != facts.arguments.size()) {
    fail("the manifest declares " + std::to_string(passed.size()) + " arguments, and the kernel has " +
         std::to_string(facts.arguments.size()) + ": write one [[arg]] for each, in their order" +
         (manifest.tensor_maps.empty() ? "" : ", or name them in [template] arguments"));
  }
  for (const ArgumentFact& argument : facts.arguments) {
    const source::PassedArgument& one = passed.at(argument.ordinal);
    const std::uint32_t size = passed_size(manifest, one);
    if (size == argument.size || size == 0) continue;
    if (one.from == From::tensor_map)
      fail("argument " + std::to_string(argument.ordinal) + " is the tensor map '" +
           passed_name(manifest, one) + "' of " + std::to_string(size) + " bytes in the manifest, and has " +
           std::to_string(argument.size) +
           " in the kernel: [template] arguments says what the kernel is passed");
    if (one.from == From::constant)
      fail("argument " + std::to_string(argument.ordinal) + " is the constant '" +
           passed_name(manifest, one) + "' of " + std::to_string(size) + " bytes in the manifest, and has " +
           std::to_string(argument.size) + " in the kernel: [template] arguments gives the constant's type");
    const source::ArgumentSpec& a = manifest.arguments[one.index];
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
  if (!manifest.arguments.empty()) check_layout(manifest, passed_to(manifest, unit.which), facts, what);
  for (const EntryFacts& entry : facts.entries) {
    const source::Manifest* of = entry_named(manifest, entry.entry);
    if (of && !of->arguments.empty())
      check_layout(*of, of->passed, entry, what + ", kernel '" + entry.entry + '\'');
  }
}

}  // namespace kiln::compile
