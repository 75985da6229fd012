#include "tools/kiln/import/report.hpp"

#include <cstdint>

#include "base/text.hpp"
#include "tools/kiln/cli/errors.hpp"
#include "tools/kiln/cli/outcome.hpp"
#include "tools/kiln/cli/output.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t kIndent = 13, kMostErrors = 3;

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json parameters_json(const ImportDraft& draft) {
  Json out = Json::array();
  for (const ImportParameter& p : draft.parameters) {
    Json values = Json::array();
    for (const auto& [name, cpp] : p.choices) values.push_back(name);
    out.push_back({{"name", p.name},
                   {"kind", name_of(p.kind)},
                   {"declared", p.declared},
                   {"values", values},
                   {"evidence", or_null(p.evidence)},
                   {"guessed", p.guessed},
                   {"default", or_null(p.fallback)},
                   {"value", or_null(p.value)}});
  }
  return out;
}

Json arguments_json(const ImportDraft& draft) {
  Json out = Json::array();
  for (const ImportArgument& a : draft.arguments) {
    out.push_back({{"name", a.name},
                   {"type", a.type},
                   {"declared", a.declared},
                   {"bytes", a.bytes == 0 ? Json(nullptr) : Json(a.bytes)}});
  }
  return out;
}

/// "host.cuh(3): error: ...; host.cuh(9): error: ..."
std::string errors_text(const Imported& in) {
  const std::vector<std::string>& all = in.proof.diagnostics;
  if (all.empty()) return in.proof.message.substr(0, in.proof.message.find('\n'));
  if (in.verbose) return '\n' + base::join(all, "\n");
  std::vector<std::string> first = all;
  first.resize(std::min(kMostErrors, all.size()));
  const std::size_t more = all.size() - first.size();
  return base::join(first, "; ") +
         (more > 0 ? "; and " + counted(more, "more error") + " (--verbose shows all)" : "");
}

/// The message of a failed import, with a line for each hint.
std::string failure(const Imported& in) {
  std::string out = "the manifest";
  if (in.written == in.site.manifest)
    out = '\'' + in.written + "' is written, but it";
  else if (!in.written.empty())
    out = '\'' + in.site.manifest + "' is left as it was; the new one is '" + in.written + "', but it";
  out += " does not compile yet: " + errors_text(in);
  for (const std::string& ask : asks_of(in.draft)) out += "\n" + ask;
  for (const std::string& header : in.draft.measures.empty)
    out += "\n'" + header +
           "' was not found and counts as empty: name its directory with -I DIR, or a stub with "
           "--replace " +
           header + "=STUB";
  for (const std::string& hint : in.proof.hints) out += "\nhint: " + hint;
  return out;
}

void print_results(const Imported& in) {
  const Terminal terminal = standard_output();
  const std::string state = in.proof.proved ? paint("compiled", Style::green, terminal)
                                            : paint("does not compile yet", Style::yellow, terminal);
  print(paint(in.draft.name, Style::bold, terminal) + " for " + in.arch.name() + ": " + state + '\n');
  print_definition("manifest", in.written, kIndent);
  if (!in.site.includer.empty()) print_definition("source", in.site.includer, kIndent);
  if (in.proof.proved) {
    const compile::Facts& facts = in.proof.image->facts;
    print_definition("params", text_of(facts.parameters), kIndent);
    print_definition("key", in.proof.image->key.hex(), kIndent);
    print_definition("image", human_bytes(in.proof.image->bytes.size()), kIndent);
    print_definition("resources", resources_of(facts), kIndent);
  }
  for (const std::string& measure : texts_of(in.draft.measures)) print_definition("needs", measure, kIndent);
  if (in.proof.proved)
    for (const std::string& ask : asks_of(in.draft)) print_definition("guessed", ask, kIndent);
  for (const std::string& todo : in.text.todo) print_definition("to fill in", todo, kIndent);
}

void print_object(const Context& context, const Imported& in) {
  Json out{{"schema", context.schema()}};
  out["template"] = in.draft.name;
  out["manifest"] = or_null(in.written);
  out["includer"] = in.written.empty() ? Json(nullptr) : or_null(in.site.includer);
  out["line"] = in.draft.kernel.line;
  out["instantiate"] = in.draft.instantiate;
  out["parameters"] = parameters_json(in.draft);
  out["arguments"] = arguments_json(in.draft);
  out["measures"] = texts_of(in.draft.measures);
  out["todo"] = in.text.todo;
  out["asks"] = asks_of(in.draft);
  out["empty"] = in.draft.measures.empty;
  out["rounds"] = in.proof.rounds;
  out["proved"] = in.proof.proved;
  out["arch"] = in.arch.name();
  const auto known = [&](auto&& value) { return in.proof.proved ? Json(value()) : Json(nullptr); };
  out["key"] = known([&] { return in.proof.image->key.hex(); });
  out["cubin_bytes"] = known([&] { return in.proof.image->bytes.size(); });
  out["compile_ms"] = known([&] { return in.proof.image->facts.compile_ms; });
  if (in.written.empty()) out["text"] = in.text.toml;
  if (!in.proof.proved) out["error"] = {{"code", name_of(in.proof.code)}, {"message", failure(in)}};
  print_json(out);
}

}  // namespace

std::vector<std::string> asks_of(const ImportDraft& draft) {
  std::vector<std::string> out;
  for (const ImportParameter& p : draft.parameters)
    if (p.guessed && !p.ask.empty()) out.push_back(p.name + ' ' + p.ask + ": give it as " + p.name + "=V");
  return out;
}

int report_import(const Context& context, const Imported& in) {
  if (context.json)
    print_object(context, in);
  else if (in.written.empty())
    print_foreign(in.text.toml);
  else
    print_results(in);
  std::fflush(stdout);
  if (in.draft.measures.unused)
    std::fputs(
        "kiln: warning: host_code = \"cut-unused\" leaves out device code, too, where the kernel does not "
        "name it: "
        "compare the results with a reference\n",
        stderr);
  if (in.proof.proved) return kDone;
  std::fprintf(stderr, "kiln: error: %s\n", failure(in).c_str());
  return kPartly;
}

}  // namespace kiln::cli
