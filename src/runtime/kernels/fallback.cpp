#include "runtime/kernels/fallback.hpp"

#include <algorithm>

#include "kiln/error.hpp"

namespace kiln::runtime {
namespace {

/// "(out: ptr<T>, rows: i32)", by which a user can compare two manifests.
std::string signature(const source::Manifest& m) {
  std::string out;
  for (const source::ArgumentSpec& a : m.arguments)
    out +=
        (out.empty() ? "" : ", ") + a.name + (a.optional ? "?" : "") + ": " + a.type.to_string(m.parameters);
  for (const source::RuntimeValueSpec& r : m.runtime) out += (out.empty() ? "" : ", ") + r.name;
  return '(' + out + ')';
}

bool same_arguments(const source::Manifest& a, const source::Manifest& b) {
  return std::equal(a.arguments.begin(), a.arguments.end(), b.arguments.begin(), b.arguments.end(),
                    [&](const source::ArgumentSpec& x, const source::ArgumentSpec& y) {
                      return x.optional == y.optional && x.access == y.access &&
                             x.type.to_string(a.parameters) == y.type.to_string(b.parameters);
                    }) &&
         std::equal(a.runtime.begin(), a.runtime.end(), b.runtime.begin(), b.runtime.end(),
                    [](const auto& x, const auto& y) { return x.name == y.name; });
}

/// The first thing that a kernel of `specialised` has and a kernel of `generic` lacks; "" when there is none.
std::string lacks(const source::Manifest& generic, const source::Manifest& specialised) {
  const auto has = [](const auto& items, const std::string& name) {
    return std::any_of(items.begin(), items.end(), [&](const auto& item) { return item.name == name; });
  };
  for (const auto& entry : specialised.entries) {
    const source::Manifest* there = entry_named(generic, entry->entry);
    if (!there || !same_arguments(*entry, *there))
      return "[[kernel]] '" + entry->entry + "' of the same arguments";
  }
  for (const source::GlobalSpec& global : specialised.globals)
    if (!has(generic.globals, global.name)) return "[[global]] '" + global.name + '\'';
  for (const source::ExportSpec& constant : specialised.exports)
    if (!has(generic.exports, constant.name)) return "[export] '" + constant.name + '\'';
  return {};
}

}  // namespace

void check_fallback(const source::Manifest& specialised, const source::Manifest& generic) {
  const std::string what = specialised.file + ": template '" + specialised.name +
                           "': [template] fallback = '" + generic.name + '\'';
  if (!same_arguments(specialised, generic)) {
    throw Error(Errc::manifest, what + " takes other arguments: " + signature(generic) + " instead of " +
                                    signature(specialised));
  }
  if (const std::string lacking = lacks(generic, specialised); !lacking.empty())
    throw Error(Errc::manifest, what + " has no " + lacking + ", which '" + specialised.name + "' has");
  for (const source::ParameterSpec& p : generic.parameters) {
    const int index = parameter_index(specialised, p.name);
    if (index < 0 && p.default_value.empty()) {
      throw Error(Errc::manifest, what + " needs the parameter '" + p.name + "', which '" + specialised.name +
                                      "' does not have and which has no default");
    }
    if (index >= 0 && specialised.parameters[static_cast<std::size_t>(index)].kind != p.kind)
      throw Error(Errc::manifest, what + ": its parameter '" + p.name + "' has another kind");
  }
}

std::vector<Value> values_for_fallback(const source::Manifest& specialised, const source::Manifest& generic,
                                       const Wanted& wanted) {
  const auto& [specialization, slots, arch, open, undecided] = wanted.resolved;
  std::vector<Value> out;
  for (const source::ParameterSpec& p : generic.parameters) {
    const int index = parameter_index(specialised, p.name);
    const auto i = static_cast<std::size_t>(index);
    const bool tuned = index >= 0 && std::find(open.begin(), open.end(), p.name) != open.end() &&
                       !(undecided && specialised.parameters[i].tune.empty());
    out.push_back(index < 0 || (tuned && !p.default_value.empty())
                      ? Value()
                      : Value(std::string_view(specialization.parameters[i].value)));
  }
  return out;
}

const LoadedKernel& FallbackChoices::choose(const Wanted& wanted, const LoadedKernel& kernel,
                                            bool is_fallback) {
  KernelTables::State& state = tables_.state.get();
  // An undecided call is entered only under the values that were given. Another call may give its default
  // values explicitly, and no choice changes that call.
  const bool open = is_open(core_, wanted);
  std::vector<std::string> adopted;
  const LoadedKernel* chosen = nullptr;
  {
    const std::lock_guard lock(state.mutex);
    const LoadedKernel* const newest = state.newest(&kernel);
    if (open)
      chosen = wanted.given ? tables_.chosen.insert(*wanted.given, newest) : newest;
    else
      chosen = tables_.chosen.insert(wanted.exact, newest);
    if (!open && wanted.given) tables_.chosen.insert(*wanted.given, chosen);
    auto pending = std::find_if(state.pending.begin(), state.pending.end(),
                                [&](const PendingFallback& p) { return p.wanted.is_of(wanted); });
    if (is_fallback && chosen == &kernel && pending == state.pending.end()) {
      ++core_.state().counters.fallbacks;
      state.pending.push_back({wanted, {}});
      if (!open) state.pending.back().keys.push_back(wanted.exact);
      pending = std::prev(state.pending.end());
    }
    if (pending != state.pending.end() && wanted.given) pending->keys.push_back(*wanted.given);
    if (core_.adopts_automatically()) {
      adopted = adopt_locked(state);
      if (!open || wanted.given) chosen = tables_.chosen.find(open ? *wanted.given : wanted.exact);
    }
  }
  tell_adopted(adopted);
  return *chosen;
}

std::vector<std::string> FallbackChoices::adopt_locked(KernelTables::State& state) {
  std::vector<std::string> names;
  std::erase_if(state.pending, [&](const PendingFallback& p) {
    if (is_open(core_, p.wanted)) return false;
    const LoadedKernel* const specialised = tables_.ready.find(p.wanted.exact);
    if (!specialised) return false;
    for (const PackedParameters& key : p.keys) tables_.chosen.replace(key, specialised);
    names.push_back(p.wanted.name());
    return true;
  });
  return names;
}

std::vector<std::string> FallbackChoices::adopt(std::vector<Wanted>& waiting) {
  KernelTables::State& state = tables_.state.get();
  const std::lock_guard lock(state.mutex);
  std::vector<std::string> names = adopt_locked(state);
  for (const PendingFallback& p : state.pending) waiting.push_back(p.wanted);
  return names;
}

void FallbackChoices::tell_adopted(const std::vector<std::string>& names) const {
  core_.state().counters.adopted += names.size();
  for (const std::string& name : names)
    core_.events().tell(KILN_EVENT_ADOPTED, name, target_.arch.name(), {});
}

}  // namespace kiln::runtime
