#include "tools/kiln/store/spelling.hpp"

#include "instantiate/instantiate.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {

std::string Spelling::shortest(const std::string& template_name, const std::vector<Parameter>& parameters,
                               const std::string& arch) {
  auto [known, is_new] = known_.try_emplace(template_name);
  try {
    if (is_new) known->second = catalog_.open(template_name);
    if (!known->second) return text_of(parameters);
    const source::Manifest& manifest = known->second->manifest;
    if (manifest.parameters.size() != parameters.size()) return text_of(parameters);
    std::vector<Value> values(parameters.size());
    std::vector<Parameter> said;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (manifest.parameters[i].name != parameters[i].name) return text_of(parameters);
      if (manifest.parameters[i].default_value.empty()) values[i] = Value(parameters[i].value);
    }
    // A given value can change the defaults of other parameters, so each round adds only the first
    // value that differs.
    for (std::size_t round = 0; round <= parameters.size(); ++round) {
      const auto resolved =
          source::resolve(manifest, values, base::Arch::parse(arch)).specialization.parameters;
      std::size_t i = 0;
      while (i < parameters.size() && resolved[i].value == parameters[i].value) ++i;
      if (i == parameters.size()) break;
      values[i] = Value(parameters[i].value);
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (values[i].kind != Value::Kind::unset) said.push_back(parameters[i]);
    }
    return text_of(said);
  } catch (const Error&) {
    return text_of(parameters);  // an older template's entry, or a manifest that is being edited
  }
}

}  // namespace kiln::cli
