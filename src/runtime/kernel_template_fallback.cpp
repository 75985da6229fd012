// A generic kernel at once, the specialised one when the engine says so.
#include <algorithm>

#include "kiln/error.hpp"
#include "runtime/kernel_template_state.hpp"
#include "runtime/service.hpp"

namespace kiln::runtime {
namespace {

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

}  // namespace

void KernelTemplate::set_fallback(std::shared_ptr<KernelTemplate> generic) {
  const source::Manifest &ours = origin_->manifest, &theirs = generic->origin().manifest;
  const std::string what =
      ours.file + ": template '" + ours.name + "': [template] fallback = '" + theirs.name + '\'';
  if (!same_arguments(ours, theirs)) {
    throw Error(Errc::manifest,
                what + " takes other arguments: " + signature(theirs) + " instead of " + signature(ours));
  }
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

/// What `wanted` has settled, or what the caller gave when nothing could be (null).
std::vector<Value> KernelTemplate::values_for_fallback(std::span<const Value> given,
                                                       const Wanted* wanted) const {
  const source::Manifest &ours = origin_->manifest, &theirs = fallback_->origin().manifest;
  std::vector<Value> out(theirs.parameters.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int index = ours.parameter_index(theirs.parameters[i].name);
    if (index < 0) continue;
    const auto at = static_cast<std::size_t>(index);
    if (wanted)
      out[i] = Value(std::string_view(wanted->resolved.specialization.parameters[at].value));
    else if (at < given.size())
      out[i] = given[at];
  }
  return out;
}

const LoadedKernel& KernelTemplate::get_or_fallback(std::span<const Value> values,
                                                    const GetRequest& request) {
  if (!fallback_) {
    throw Error(Errc::invalid_argument, "template '" + origin_->manifest.name +
                                            "' names no fallback ([template] fallback in its manifest)");
  }
  check_usable();
  std::optional<Wanted> wanted;
  try {
    wanted = want(values);
  } catch (const Error& error) {  // the generic template is for the other archs as well
    if (error.code() != Errc::unsupported_arch) throw;
    return fallback_->get(values_for_fallback(values, nullptr), request);
  }
  if (const LoadedKernel* settled = chosen_.find(wanted->exact)) return choose(*wanted, *settled, false);
  if (const LoadedKernel* found = ready(*wanted, source::Which::kernel))
    return choose(*wanted, *found, false);
  service_.record(*origin_, wanted->resolved);
  const bool refused = service_.misses(wanted->resolved);
  if (!refused && !captures(request)) {
    source::Instantiation unit = source::instantiate(origin_, wanted->resolved);
    if (auto obtained = service_.pipeline().there(unit, options_of(request)))
      return choose(*wanted, load_once(*wanted, std::move(unit), std::move(*obtained), request), false);
  }
  const LoadedKernel& generic = fallback_->get(values_for_fallback(values, &*wanted), request);
  if (!refused && service_.may_compile())
    make_behind(*wanted);
  else if (!refused)
    service_.note_missing(wanted->resolved);
  return choose(*wanted, generic, true);
}

const LoadedKernel& KernelTemplate::choose(const Wanted& wanted, const LoadedKernel& kernel,
                                           bool is_fallback) {
  State& state = state_.get();
  std::vector<std::string> adopted;
  const LoadedKernel* chosen = nullptr;
  {
    const std::lock_guard lock(state.mutex);
    chosen = chosen_.insert(wanted.exact, &kernel);
    if (wanted.given) chosen_.insert(*wanted.given, chosen);
    auto pending = std::find_if(state.pending.begin(), state.pending.end(),
                                [&](const State::Pending& p) { return p.name == wanted.name(); });
    if (is_fallback && chosen == &kernel && pending == state.pending.end()) {
      ++service_.pipeline().counters().fallbacks;
      state.pending.push_back({wanted.name(), wanted.exact, {wanted.exact}});
      pending = std::prev(state.pending.end());
    }
    if (pending != state.pending.end() && wanted.given) pending->keys.push_back(*wanted.given);
    if (service_.adopts_automatically()) {
      adopted = adopt_locked(state);
      chosen = chosen_.find(wanted.exact);
    }
  }
  tell_adopted(adopted);
  return *chosen;
}

/// REQUIRES: the state's mutex.
std::vector<std::string> KernelTemplate::adopt_locked(State& state) {
  std::vector<std::string> names;
  std::erase_if(state.pending, [&](const State::Pending& p) {
    const LoadedKernel* const specialised = ready_.find(p.exact);
    if (!specialised) return false;
    for (const PackedParameters& key : p.keys) chosen_.replace(key, specialised);
    names.push_back(p.name);
    return true;
  });
  return names;
}

void KernelTemplate::tell_adopted(const std::vector<std::string>& names) const {
  service_.pipeline().counters().adopted += names.size();
  for (const std::string& name : names)
    service_.events().tell(KILN_EVENT_ADOPTED, name, target_.arch.name(), {});
}

std::uint64_t KernelTemplate::adopt() {
  State& state = state_.get();
  std::vector<std::string> names;
  {
    const std::lock_guard lock(state.mutex);
    names = adopt_locked(state);
  }
  tell_adopted(names);
  return names.size();
}

}  // namespace kiln::runtime
