#include "source/instantiate.hpp"

#include "kiln/error.hpp"
#include "source/braces.hpp"
#include "source/parameter_value.hpp"
#include "source/quote.hpp"

namespace kiln::source {
namespace {

std::vector<std::string> compile_options(const CompileSpec& compile) {
  std::vector<std::string> out = {"-std=" + compile.std};
  if (compile.default_device) out.push_back("-default-device");
  if (compile.minimal) out.push_back("--minimal");
  for (const auto& [name, text] : compile.define) out.push_back("-D" + name + '=' + text);
  out.insert(out.end(), compile.options.begin(), compile.options.end());
  for (const std::string& name : compile.preinclude) out.push_back("--pre-include=" + name);
  return out;
}

std::string fill_expression(const Manifest& manifest, const std::string& instantiate,
                            const std::vector<std::int64_t>& slots) {
  return fill_braces(instantiate, [&](const std::string& name) {
    const int slot = manifest.slot_index(name);
    if (slot < 0)
      throw Error(Errc::internal,
                  "name expression of " + quote(manifest.name) + " has unknown {" + name + '}');
    const auto i = static_cast<std::size_t>(slot);
    return i < manifest.parameters.size() ? parameter_cpp(manifest.parameters[i], slots[i])
                                          : integer_cpp(slots[i]);
  });
}

}  // namespace

Instantiation instantiate(std::shared_ptr<const Template> origin, Resolved resolved, Which which) {
  const Manifest& manifest = origin->manifest;
  if (which == Which::reference && !manifest.reference) {
    throw Error(Errc::source, "template " + quote(manifest.name) + " has no [reference]");
  }
  const bool kernel = which == Which::kernel;
  const EntryPoint& entry = kernel ? manifest.kernel : *manifest.reference;
  Instantiation out;
  out.which = which;
  out.unit = manifest.name + (kernel ? "" : "@reference");
  out.name_expression = fill_expression(manifest, entry.instantiate, resolved.slots);
  out.options = compile_options(manifest.compile);
  out.source = (kernel ? origin->kernel : origin->reference).read();
  out.resolved = std::move(resolved);
  out.origin = std::move(origin);
  return out;
}

}  // namespace kiln::source
