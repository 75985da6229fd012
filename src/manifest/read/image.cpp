#include "manifest/read/image.hpp"

#include "base/quote.hpp"
#include "base/text.hpp"
#include "expression/braces.hpp"
#include "manifest/read/order.hpp"
#include "manifest/read/parse.hpp"

namespace kiln::source {

void read_globals(Draft& draft, const TableReader& root) {
  for (const TomlValue* table : root.tables("global")) {
    const TableReader reader(*table, "[[global]]", root.file(), {"name", "symbol", "doc"});
    GlobalSpec out;
    out.name = reader.need_line("name");
    if (!base::is_identifier(out.name))
      reader.fail("name", base::quote(out.name) + " must be [A-Za-z_][A-Za-z0-9_]*");
    for (const GlobalSpec& other : draft.out.globals) {
      if (other.name == out.name) reader.fail("name", "two globals are called " + base::quote(out.name));
    }
    out.symbol = name_expression(draft, reader, "symbol");
    if (out.symbol.starts_with('&'))
      reader.fail("symbol", base::quote(out.symbol) + " is written without '&'");
    out.doc = reader.text_or("doc", "");
    draft.out.globals.push_back(std::move(out));
  }
}

void declare_exports(Draft& draft, const TableReader& root) {
  const TomlValue* found = root.find("export");
  if (!found) return;
  const TableReader reader(*found, "[export]", root.file());
  for (const auto& [name, value] : found->members) {
    take_name(draft, reader, name, name, "an export");
    draft.out.exports.push_back({name, {}});
  }
}

void read_exports(Draft& draft, const TableReader& root) {
  const TomlValue* found = root.find("export");
  if (!found) return;
  const TableReader reader(*found, "[export]", root.file());
  for (ExportSpec& out : draft.out.exports) out.cpp = name_expression(draft, reader, out.name);
}

void check_spellings(Draft& draft, const TableReader& root) {
  const Manifest& m = draft.out;
  std::vector<std::vector<int>> needs(m.parameters.size());
  for (std::size_t i = 0; i < m.parameters.size(); ++i) {
    const TableReader reader(root.find("param")->members[i].second, "[param." + m.parameters[i].name + ']',
                             root.file());
    for (const ParameterSpec::Choice& choice : m.parameters[i].choices) {
      const char* key = m.parameters[i].kind == ParameterKind::dtype ? "spelling" : "values";
      check_cpp(draft, reader, key, choice.cpp);
      for (const Braces::Piece& piece : split_braces(choice.cpp).pieces) {
        if (const int other = piece.is_name ? parameter_index(m, piece.text) : -1; other >= 0)
          needs[i].push_back(other);
      }
    }
  }
  topological_order(needs, [&](const std::vector<int>& cycle) {
    std::vector<std::string> names;
    for (const int i : cycle) names.push_back(m.parameters[static_cast<std::size_t>(i)].name);
    root.fail("param", "the C++ texts of values need each other: " + base::join(names, " -> "));
  });
  const TomlValue* compile = root.find("compile");
  const TomlValue* define = compile ? compile->find("define") : nullptr;
  if (!define) return;
  const TableReader reader(*define, "[compile] define", root.file());
  for (const auto& [name, text] : m.compile.define) check_cpp(draft, reader, name, text);
}

}  // namespace kiln::source
