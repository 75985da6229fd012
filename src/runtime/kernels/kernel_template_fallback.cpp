// A generic kernel at once, the specialised one when the engine says so.
#include <algorithm>

#include "base/log.hpp"
#include "kiln/error.hpp"
#include "runtime/kernels/kernel_template_state.hpp"
#include "runtime/service/service.hpp"
#include "runtime/tuned/pinned_choices.hpp"

namespace kiln::runtime {
namespace {

/// How long a load, or a store with a tuned choice, may take before the generic kernel is the quicker answer.
constexpr auto kLoadPatience = std::chrono::milliseconds(100);

/// "(out: ptr<T>, rows: i32)", for comparing by eye what was compared.
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

/// The first thing that a caller may ask of a kernel of `specialised` and not of one of `generic`; "" when
/// there is none.
std::string lacks(const source::Manifest& generic, const source::Manifest& specialised) {
  const auto has = [](const auto& items, const std::string& name) {
    return std::any_of(items.begin(), items.end(), [&](const auto& item) { return item.name == name; });
  };
  for (const auto& entry : specialised.entries) {
    const source::Manifest* there = generic.entry_named(entry->entry);
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

void KernelTemplate::set_fallback(std::shared_ptr<KernelTemplate> generic) {
  const source::Manifest &ours = origin_->manifest, &theirs = generic->origin().manifest;
  const std::string what =
      ours.file + ": template '" + ours.name + "': [template] fallback = '" + theirs.name + '\'';
  if (!same_arguments(ours, theirs)) {
    throw Error(Errc::manifest,
                what + " takes other arguments: " + signature(theirs) + " instead of " + signature(ours));
  }
  if (const std::string lacking = lacks(theirs, ours); !lacking.empty())
    throw Error(Errc::manifest, what + " has no " + lacking + ", which '" + ours.name + "' has");
  for (const source::ParameterSpec& p : theirs.parameters) {
    const int index = ours.parameter_index(p.name);
    if (index < 0 && p.default_value.empty()) {
      throw Error(Errc::manifest, what + " needs the parameter '" + p.name + "', which '" + ours.name +
                                      "' does not have and which has no default");
    }
    if (index >= 0 && ours.parameters[static_cast<std::size_t>(index)].kind != p.kind)
      throw Error(Errc::manifest, what + ": its parameter '" + p.name + "' is of another kind");
  }
  fallback_ = std::move(generic);
}

/// What the caller left to tuning is left to it in the generic template, too, if it has a default there.
std::vector<Value> KernelTemplate::values_for_fallback(const Wanted& wanted) const {
  const source::Manifest& ours = origin_->manifest;
  const auto& [specialization, slots, arch, open, undecided] = wanted.resolved;
  std::vector<Value> out;
  for (const source::ParameterSpec& p : fallback_.lock()->origin().manifest.parameters) {
    const int index = ours.parameter_index(p.name);
    const auto i = static_cast<std::size_t>(index);
    const bool tuned = index >= 0 && std::find(open.begin(), open.end(), p.name) != open.end() &&
                       !(undecided && ours.parameters[i].tune.empty());
    out.push_back(index < 0 || (tuned && !p.default_value.empty())
                      ? Value()
                      : Value(std::string_view(specialization.parameters[i].value)));
  }
  return out;
}

/// From disk or memory, if that neither compiles nor takes longer than a load does. Whatever is wrong with
/// it, there is the generic one.
const LoadedKernel* KernelTemplate::specialised_at_once(const Wanted& wanted, const GetRequest& request) try {
  GetRequest quick = request;
  quick.deadline = earlier(request.deadline, base::Deadline::after(kLoadPatience));
  source::Instantiation unit = source::instantiate(origin_, wanted.resolved);
  auto obtained = service_.pipeline().there(unit, options_of(quick));
  quick.may_compile = false;
  return obtained ? &load_once(wanted, std::move(unit), std::move(*obtained), quick) : nullptr;
} catch (const Error& error) {
  base::info("a fallback serves: " + std::string(error.what()));
  return nullptr;
}

/// Undecided where no store may be asked (a capture), or none has answered in time: then the generic kernel
/// serves, and what it is to become is decided behind the caller's back.
KernelTemplate::Wanted KernelTemplate::want_soon(std::span<const Value> values,
                                                 const GetRequest& request) const {
  Wanted wanted = want(values, request, Disk::left_alone, source::Archs::any);
  if (wanted.undecided.empty() || service_.is_sealed() || captures(request)) return wanted;
  GetRequest quick = request;
  quick.deadline = earlier(request.deadline, base::Deadline::after(kLoadPatience));
  Wanted asked = decided(wanted, quick);
  asked.given = wanted.given;  // no hit of the ready table: adopted when it is made
  asked.prepared.reset();      // it may be made later, of what the files are then
  return asked;
}

const LoadedKernel& KernelTemplate::get_or_fallback(std::span<const Value> values,
                                                    const GetRequest& request) {
  const std::shared_ptr<KernelTemplate> generic = fallback_.lock();
  if (!generic) {
    throw Error(Errc::invalid_argument, "template '" + origin_->manifest.name +
                                            "' names no fallback ([template] fallback in its manifest)");
  }
  check_usable();
  const Wanted wanted = want_soon(values, request);
  const bool open = !wanted.undecided.empty() && !service_.is_sealed();
  const LoadedKernel* const settled = open ? nullptr : chosen_.find(wanted.exact);
  if (settled && !wanted.undecided.empty()) pin_choice(wanted.undecided, {});
  if (settled) return choose(wanted, *settled, false);
  if (!source::supports(origin_->manifest, target_.arch))  // for such archs the generic one is there for good
    return choose(wanted, generic->get(values_for_fallback(wanted), request), false);
  const LoadedKernel* const there = open ? nullptr : ready(wanted, source::Which::kernel);
  if (there) return choose(wanted, *there, false);
  const bool refused = service_.misses(*origin_, wanted.resolved);
  const bool behind = !refused && service_.may_compile();
  if (!refused && !(open && behind)) service_.record(*origin_, wanted.resolved);
  if (!refused && !open && !captures(request)) {
    if (const LoadedKernel* found = specialised_at_once(wanted, request))
      return choose(wanted, *found, false);
  }
  const LoadedKernel& kernel = generic->get(values_for_fallback(wanted), request);
  if (behind)
    make_behind(wanted);
  else if (!refused)
    service_.note_missing(wanted.resolved);
  return choose(wanted, kernel, true);
}

const LoadedKernel& KernelTemplate::choose(const Wanted& wanted, const LoadedKernel& kernel,
                                           bool is_fallback) {
  State& state = state_.get();
  // Others may say outright what an undecided call is by default: it stands for what was said alone.
  const bool open = !wanted.undecided.empty() && !service_.is_sealed();
  std::vector<std::string> adopted;
  const LoadedKernel* chosen = nullptr;
  {
    const std::lock_guard lock(state.mutex);
    if (open)
      chosen = wanted.given ? chosen_.insert(*wanted.given, &kernel) : &kernel;
    else
      chosen = chosen_.insert(wanted.exact, &kernel);
    if (!open && wanted.given) chosen_.insert(*wanted.given, chosen);
    auto pending = std::find_if(state.pending.begin(), state.pending.end(),
                                [&](const State::Pending& p) { return p.wanted.is_of(wanted); });
    if (is_fallback && chosen == &kernel && pending == state.pending.end()) {
      ++service_.pipeline().counters().fallbacks;
      state.pending.push_back({wanted, {}});
      if (!open) state.pending.back().keys.push_back(wanted.exact);
      pending = std::prev(state.pending.end());
    }
    if (pending != state.pending.end() && wanted.given) pending->keys.push_back(*wanted.given);
    if (service_.adopts_automatically()) {
      adopted = adopt_locked(state);
      if (!open || wanted.given) chosen = chosen_.find(open ? *wanted.given : wanted.exact);
    }
  }
  tell_adopted(adopted);
  return *chosen;
}

/// REQUIRES: the state's mutex.
std::vector<std::string> KernelTemplate::adopt_locked(State& state) {
  std::vector<std::string> names;
  std::erase_if(state.pending, [&](const State::Pending& p) {
    if (!p.wanted.undecided.empty() && !service_.is_sealed()) return false;
    const LoadedKernel* const specialised = ready_.find(p.wanted.exact);
    if (!specialised) return false;
    for (const PackedParameters& key : p.keys) chosen_.replace(key, specialised);
    names.push_back(p.wanted.name());
    return true;
  });
  return names;
}

void KernelTemplate::tell_adopted(const std::vector<std::string>& names) const {
  service_.pipeline().counters().adopted += names.size();
  for (const std::string& name : names)
    service_.events().tell(KILN_EVENT_ADOPTED, name, target_.arch.name(), {});
}

/// What is not ready yet may have failed for a reason that has passed: it is asked for again. The pipeline
/// remembers what need not be tried.
std::uint64_t KernelTemplate::adopt() {
  State& state = state_.get();
  std::vector<std::string> names;
  std::vector<Wanted> waiting;
  {
    const std::lock_guard lock(state.mutex);
    names = adopt_locked(state);
    for (const State::Pending& p : state.pending) waiting.push_back(p.wanted);
  }
  tell_adopted(names);
  if (service_.may_compile())
    for (const Wanted& wanted : waiting) make_behind(wanted);
  return names.size();
}

}  // namespace kiln::runtime
