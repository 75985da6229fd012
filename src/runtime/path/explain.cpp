#include "runtime/path/explain.hpp"

#include "runtime/path/path.hpp"

namespace kiln::runtime {

std::optional<Outcome> Path::look(const source::Instantiation& instantiation) {
  const Unit unit{state_.files.read(instantiation, source::Trust::memo), instantiation};
  if (memory_.find(unit.made.key)) return Outcome::memory;
  const auto found = disk_.find(unit, {}, Counted::no);
  return found ? std::optional(found->outcome) : std::nullopt;
}

Explanation Path::explain(const source::Instantiation& instantiation, const ObtainOptions& options) {
  const Unit unit{state_.files.read(instantiation, source::Trust::memo), instantiation};
  Explanation out;
  out.made = unit.made;
  out.missing = unit.closure.missing;
  out.computed_include = unit.closure.computed;
  if (state_.files.toolkit().has_compiler())
    out.unpublishable = compile::unpublishable_beforehand(unit.closure, state_.files.toolkit());
  if (auto kept = memory_.find(unit.made.key)) {
    out.found = Obtained{std::move(kept), Outcome::memory, {}};
    return out;
  }
  out.found = disk_.find(unit, options, Counted::no);
  if (!out.found && options.any_arch) out.found = find_other_arch(unit, options, Counted::no);
  for (const auto& store : state_.stores.asked()) {
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
