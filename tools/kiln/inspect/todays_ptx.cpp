#include "tools/kiln/inspect/todays_ptx.hpp"
#include "tools/kiln/store/key/sentences.hpp"

#include "base/text.hpp"
#include "instantiate/instantiate.hpp"
#include "tools/kiln/store/entries.hpp"
#include "tools/kiln/store/key/difference.hpp"

namespace kiln::cli {

std::string todays_ptx(runtime::Service& service, const Key& key, const compile::Facts& facts,
                       std::string_view key_text) {
  runtime::Core& core = service.core();
  core.state().stores.use_places({});  // nothing is looked up or stored
  const auto at = facts.unit.find('@');
  const auto origin = service.catalog().open(facts.unit.substr(0, at));
  std::vector<NamedValue> named;
  for (const Parameter& p : facts.parameters) named.push_back({p.name, Value(p.value)});
  const source::Instantiation unit =
      source::instantiate(origin,
                          source::resolve(origin->manifest, source::positional(origin->manifest, named),
                                          base::Arch::parse(facts.arch)),
                          at == std::string::npos ? source::Which::kernel : source::Which::reference);
  const auto today = core.path().explain(unit, {.deadline = base::Deadline::after(std::chrono::seconds(10))});
  if (today.made.key != key) {
    const Sides sides{"in the entry", "today", facts.compiler_version, ""};
    throw Error(Errc::io, "PTX is not stored, and cannot be made again for this entry: " +
                              base::join(sentences(key_differences(key_text, today.made.text), sides), "; ") +
                              " ('kiln compile --emit ptx' compiles today's sources)");
  }
  std::string text = core.compile_alone(unit, true).ptx;
  text.erase(text.find_last_not_of('\0') + 1);  // NVRTC's size includes the terminating NUL
  return text;
}

}  // namespace kiln::cli
