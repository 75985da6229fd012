#include "manifest/read/prewarm.hpp"

#include <algorithm>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "manifest/parameter_value.hpp"
#include "manifest/read/order.hpp"
#include "manifest/read/prewarm_values.hpp"

namespace kiln::source {
void read_prewarm(Draft& draft, const TableReader& root) {
  const Manifest& m = draft.out;
  for (const TomlValue* table : root.tables("prewarm")) {
    const TableReader row(*table, "[[prewarm]]", root.file());
    PrewarmRow out;
    out.line = table->line;
    for (const auto& [name, value] : table->members) {
      if (name == "arch") {  // reserved: no parameter has this name
        out.archs = prewarm_archs(row);
        continue;
      }
      const int index = parameter_index(m, name);
      if (index < 0) {
        row.fail(name, "is no parameter of " + m.name + base::did_you_mean(name, parameter_names(m)) +
                           "; known: " + base::join(parameter_names(m), " "));
      }
      const ParameterSpec& spec = m.parameters[static_cast<std::size_t>(index)];
      std::vector<std::string> texts = prewarm_texts(row, name);
      if (std::find(texts.begin(), texts.end(), kEveryValue) != texts.end()) {
        if (texts.size() > 1) row.fail(name, "\"*\" stands for every value, and must stand alone");
        texts = every_value(spec);
        if (texts.empty())
          row.fail(name, "\"*\" stands for every value of a parameter that lists its values, and " +
                             base::quote(name) + " allows " + allowed_values(spec));
      }
      for (std::string& text : texts) {
        const auto known = parameter_value(spec, text);
        if (!known) row.fail(name, base::quote(text) + " is not allowed; allowed: " + allowed_values(spec));
        text = parameter_text(spec, *known);
      }
      out.values.emplace_back(name, std::move(texts));
    }
    for (const ParameterSpec& spec : m.parameters) {
      if (spec.default_value.empty() && !table->find(spec.name))
        row.fail(spec.name, "has no default and must be given");
    }
    draft.out.prewarm.push_back(std::move(out));
  }
}

}  // namespace kiln::source
