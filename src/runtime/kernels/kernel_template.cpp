#include "runtime/kernels/kernel_template.hpp"

#include <map>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "kiln/error.hpp"
#include "runtime/tuned/pinned_choices.hpp"

namespace kiln::runtime {
namespace {

/// Throws when an entry point has more slots than a launch has room for.
void check_slots(const source::Manifest& manifest) {
  if (manifest.slots.total() > kMaxSlots) {
    throw Error(Errc::manifest,
                manifest.file + ": " +
                    (manifest.entry.empty() ? "" : "[[kernel]] '" + manifest.entry + "' has ") +
                    "more than " + std::to_string(kMaxSlots) +
                    " parameters, derives, arguments, run-time values and exports together");
  }
  for (const auto& entry : manifest.entries) check_slots(*entry);
}

}  // namespace

KernelTemplate::KernelTemplate(Core& core, std::shared_ptr<const source::Template> origin, Target target)
    : origin_(std::move(origin)),
      target_(std::move(target)),
      packing_(origin_->manifest),
      fallbacks_(core, target_, tables_),
      maker_(core, origin_, target_, packing_, tables_, fallbacks_),
      behind_(maker_, target_, tables_) {
  const source::Manifest& m = origin_->manifest;
  check_slots(m);
  for (const auto& [arch, variant] : m.variants) check_slots(*variant);
}

KernelTemplate::~KernelTemplate() = default;

const LoadedKernel& KernelTemplate::get(std::span<const Value> values, const GetRequest& request) {
  maker_.check_usable();
  Wanted wanted = maker_.calls().want(values, request, Disk::left_alone);
  if (is_open(maker_.core(), wanted, request.asked())) {
    if (maker_.captures(request)) {  // before any store is read
      maker_.admit(wanted, request);
      maker_.refuse_in_capture(wanted);
    }
    wanted = maker_.calls().decided(std::move(wanted), request);
  }
  if (const LoadedKernel* found = maker_.ready(wanted, request.which)) return *found;
  maker_.admit(wanted, request);
  if (maker_.captures(request)) maker_.refuse_in_capture(wanted);
  return maker_.make(wanted, request, shared_from_this());
}

KernelFuture KernelTemplate::get_async(std::span<const Value> values, const GetRequest& request) {
  maker_.check_usable();
  Wanted wanted = maker_.calls().want(values, request, Disk::left_alone);
  // Otherwise kiln's own thread asks the stores.
  if (!is_open(maker_.core(), wanted, request.asked())) {
    if (const LoadedKernel* found = maker_.ready(wanted, request.which)) {
      std::promise<const LoadedKernel*> promise;
      promise.set_value(found);
      return promise.get_future().share();
    }
    maker_.admit(wanted, request);
  }
  return behind_.begin(std::move(wanted), request, shared_from_this());
}

std::optional<Outcome> KernelTemplate::get_on_own_thread(std::span<const Value> values, GetRequest request) {
  maker_.check_usable();
  const Wanted wanted = maker_.calls().want(values, request);
  KernelTables::State& state = tables_.state.get();
  {
    const std::lock_guard lock(state.mutex);  // a release may come while this thread runs
    if (tables_.of(request.which).find(wanted.exact)) return std::nullopt;
  }
  maker_.admit(wanted, request);
  request.own_thread = true;
  const CurrentContext current(target_, "loading " + wanted.name());
  const LoadedKernel& made = maker_.make(wanted, request, shared_from_this());
  const std::lock_guard lock(state.mutex);
  if (request.epoch && *request.epoch != state.epoch)
    throw Error(Errc::not_ready, wanted.name() + " was not kept: its scope was released meanwhile");
  return made.outcome();
}

const KernelFamily& KernelTemplate::get_family(std::span<const Value> values, const GetRequest& request) {
  return FamilyMaker(maker_, behind_, origin_, tables_).get(values, request, shared_from_this());
}

void KernelTemplate::prefetch(std::span<const Value> values) {
  if (target_.driver) maker_.check_usable();
  const Wanted wanted = maker_.calls().want(values, {}, Disk::left_alone);
  if (!is_open(maker_.core(), wanted)) {
    if (maker_.ready(wanted, source::Which::kernel)) return;
    maker_.admit(wanted, {});
  }
  behind_.make(wanted, shared_from_this());
}

Obtained KernelTemplate::compile(std::span<const Value> values, const GetRequest& request) {
  const Wanted wanted = maker_.calls().want(values, request);
  maker_.admit(wanted, request);
  return maker_.obtain(wanted, request);
}

void KernelTemplate::set_fallback(const std::shared_ptr<KernelTemplate>& generic) {
  check_fallback(origin_->manifest, generic->origin().manifest);
  generic_ = generic;
}

const LoadedKernel& KernelTemplate::get_or_fallback(std::span<const Value> values,
                                                    const GetRequest& request) {
  const std::shared_ptr<KernelTemplate> generic = generic_.lock();
  if (!generic) {
    throw Error(Errc::invalid_argument, "template '" + origin_->manifest.name +
                                            "' names no fallback ([template] fallback in its manifest)");
  }
  maker_.check_usable();
  Core& core = maker_.core();
  const auto generic_kernel = [&](const Wanted& wanted) -> const LoadedKernel& {
    return generic->get(values_for_fallback(origin_->manifest, generic->origin().manifest, wanted), request);
  };
  const Wanted wanted = maker_.want_soon(values, request);
  const bool open = is_open(core, wanted, request.asked());
  const LoadedKernel* const settled = open ? nullptr : tables_.chosen.find(wanted.exact);
  if (settled && !wanted.undecided.empty()) pin_choice(wanted.undecided, {});
  if (settled) return fallbacks_.choose(wanted, *settled, false);
  if (!source::supports(origin_->manifest, target_.arch))  // for such archs the generic kernel stays for good
    return fallbacks_.choose(wanted, generic_kernel(wanted), false);
  const LoadedKernel* const there = open ? nullptr : maker_.ready(wanted, source::Which::kernel);
  if (there) return fallbacks_.choose(wanted, *there, false);
  const bool refused = core.misses().refuses(*origin_, wanted.resolved);
  const bool behind = !refused && core.permission().compile;
  if (!refused && !(open && behind)) core.record(*origin_, wanted.resolved);
  if (!refused && !open && !maker_.captures(request)) {
    if (const LoadedKernel* found = maker_.make_at_once(wanted, request, shared_from_this()))
      return fallbacks_.choose(wanted, *found, false);
  }
  const LoadedKernel& kernel = generic_kernel(wanted);
  if (behind)
    behind_.make(wanted, shared_from_this());
  else if (!refused)
    core.misses().note(wanted.resolved);
  return fallbacks_.choose(wanted, kernel, true);
}

/// Asks again for the kernels that are not ready: the reason of an earlier failure may have passed. The path
/// remembers failures that need no new try.
std::uint64_t KernelTemplate::adopt() {
  std::vector<Wanted> waiting;
  std::vector<std::string> names = fallbacks_.adopt(waiting);
  const std::vector<std::string> own_arch = maker_.adopt_own_arch();
  names.insert(names.end(), own_arch.begin(), own_arch.end());
  fallbacks_.tell_adopted(names);
  if (maker_.core().permission().compile)
    for (const Wanted& wanted : waiting) behind_.make(wanted, shared_from_this());
  return names.size();
}

void KernelTemplate::follow_generic() {
  const std::shared_ptr<KernelTemplate> generic = generic_.lock();
  if (!generic) return;
  std::map<const LoadedKernel*, const LoadedKernel*> replaced;
  {
    KernelTables::State& theirs = generic->tables_.state.get();
    const std::lock_guard lock(theirs.mutex);
    replaced = theirs.replaced;
  }
  KernelTables::State& state = tables_.state.get();
  const std::lock_guard lock(state.mutex);
  for (const auto& [old, better] : replaced) tables_.chosen.replace_everywhere(old, better);
}

void KernelTemplate::release() {
  KernelTables::State& state = tables_.state.get();
  std::vector<std::unique_ptr<LoadedKernel>> gone;  // the driver is called without the lock
  {
    const std::lock_guard lock(state.mutex);
    ++state.epoch;
    tables_.ready.clear(), tables_.references.clear(), tables_.chosen.clear();
    state.pending.clear(), state.loading.clear(), state.behind.clear();
    state.other_arch.clear(), state.replaced.clear(), state.families.clear();
    gone = std::move(state.kernels);
    state.kernels.clear();
  }
  for (const auto& kernel : gone) maker_.core().state().counters.device_bytes -= kernel->image().bytes.size();
}

void KernelTemplate::describe_loaded(std::map<std::string, std::set<std::string>>& out) {
  KernelTables::State& state = tables_.state.get();
  std::vector<std::pair<std::string, std::shared_ptr<const StoredImage>>> loaded;
  {
    const std::lock_guard lock(state.mutex);
    std::set<const LoadedKernel*> unused;  // replaced, or not adopted yet
    for (const auto& [old, better] : state.replaced) unused.insert(old);
    for (const KernelOfOtherArch& other : state.other_arch) unused.insert(other.better);
    for (const auto& kernel : state.kernels)
      if (!unused.contains(kernel.get()))
        loaded.emplace_back(kernel->specialization(), kernel->shared_image());
    for (const PendingFallback& p : state.pending) out[p.wanted.name()].insert("runs its fallback");
  }
  for (const auto& [name, image] : loaded)
    out[name + ' ' + image->facts.arch].insert(origin_->digest.hex() + ' ' +
                                               base::digest_of(image->bytes).hex());
}

void KernelTemplate::take_faults(std::vector<KernelFault>& out) {
  KernelTables::State& state = tables_.state.get();
  std::vector<std::pair<std::string, std::shared_ptr<FaultWords>>> watched;
  {
    const std::lock_guard lock(state.mutex);
    for (const auto& kernel : state.kernels)
      if (kernel->faults()) watched.emplace_back(kernel->specialization(), kernel->faults());
  }
  if (watched.empty()) return;
  const std::string doing = "reading the faults of " + origin_->manifest.name;
  const CurrentContext current(target_, doing);
  const StreamOfItsOwn stream(*target_.driver, doing);
  for (const auto& [name, words] : watched)
    if (const auto fault = words->take(stream.get(), doing))
      out.push_back({origin_->manifest.name, name, target_.device.ordinal, *fault});
}

}  // namespace kiln::runtime
