// What the path would find, and why: for `kiln why`.
#include "compile/compiler.hpp"
#include "runtime/path/unit.hpp"

namespace kiln::runtime {

Explanation Pipeline::explain(const source::Instantiation& instantiation, const ObtainOptions& options) {
  const Unit unit = prepare(instantiation, source::Trust::memo);
  Explanation out;
  out.made = unit.made;
  out.missing = unit.closure.missing;
  out.computed_include = unit.closure.computed;
  if (toolkit().has_compiler())
    out.unpublishable = compile::unpublishable_beforehand(unit.closure, toolkit());
  {
    State& state = state_.get();
    std::lock_guard lock(state.mutex);
    if (const auto kept = state.memory.find(unit.made.key); kept != state.memory.end()) {
      out.found = Obtained{kept->second, Outcome::memory, {}};
      return out;
    }
  }
  out.found = from_disk(unit, options, false);
  std::vector<std::shared_ptr<cache::Store>> asked = layers();
  for (const auto& store : {places().readable, places().writable})
    if (store) asked.push_back(store);
  for (const auto& store : asked) {
    if (out.found) {
      if (out.directory.empty() && store->peek(out.found->image->key, options.deadline))
        out.directory = store->directory();
    }
    if (out.found && out.found->image->key == unit.made.key) continue;
    const auto got = store->get(unit.made.key, unit.made.text, options.deadline);
    if (!got.record && got.miss != cache::Miss::absent) out.faults.push_back({store->directory(), got.miss});
  }
  return out;
}

}  // namespace kiln::runtime
