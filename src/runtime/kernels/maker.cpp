#include "runtime/kernels/maker.hpp"

#include "base/log.hpp"
#include "kiln/error.hpp"
#include "runtime/state/capture_guard.hpp"
#include "runtime/tuned/pinned_choices.hpp"

namespace kiln::runtime {

using namespace toolchain;

namespace {

/// The time that a load, or a store with a tuned choice, may take. After it the generic kernel is
/// the quicker answer.
constexpr auto kLoadPatience = std::chrono::milliseconds(100);

}  // namespace

KernelMaker::KernelMaker(Core& core, const std::shared_ptr<const source::Template>& origin,
                         const Target& target, const ParameterPacking& packing, KernelTables& tables,
                         FallbackChoices& fallbacks)
    : core_(core),
      origin_(origin),
      target_(target),
      tables_(tables),
      calls_(core, origin, target, packing),
      loader_(core, origin, target, tables, fallbacks) {}

void KernelMaker::check_usable() const {
  if (!target_.driver) {
    throw Error(Errc::no_driver, "template '" + origin_->manifest.name +
                                     "' was opened without a device: it can compile (compile()), "
                                     "but not load kernels. " +
                                     Driver::load_error());
  }
  if (generation_ != base::process_generation())
    Driver::refuse_in_forked_child("getting a kernel of template '" + origin_->manifest.name + '\'');
}

bool KernelMaker::captures(const GetRequest& request) const {
  if (capturing_here()) return true;
  if (!request.stream) return false;
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  target_.driver->check(target_.driver->cuStreamIsCapturing(*request.stream, &status), "cuStreamIsCapturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void KernelMaker::refuse_in_capture(const Wanted& wanted) const {
  throw Error(Errc::not_ready,
              wanted.name() + " is not ready, and " +
                  (capturing_here() ? "this thread is in a CaptureScope" : "the stream is capturing") +
                  ": get it before the capture");
}

void KernelMaker::admit(const Wanted& wanted, const GetRequest& request) {
  core_.misses().refuse_when_sealed(*origin_, wanted.resolved, request.asked());  // this touches no file
  if (request.which == source::Which::kernel) core_.record(*origin_, wanted.resolved);
}

/// A sealed service serves the defaults of an undecided call. They are pinned, so that the process
/// stays with them.
const LoadedKernel* KernelMaker::ready(const Wanted& wanted, source::Which which) {
  const LoadedKernel* found = tables_.of(which).find(wanted.exact);
  if (!found) return nullptr;
  if (is_open(core_, wanted)) return found;
  if (!wanted.undecided.empty()) pin_choice(wanted.undecided, {});
  if (!wanted.given) return found;
  KernelTables::State& state = tables_.state.get();
  const std::lock_guard lock(state.mutex);
  tables_.of(which).insert(*wanted.given, state.newest(found));
  return found;
}

const LoadedKernel* KernelMaker::ready_behind(const Wanted& wanted, source::Which which) {
  KernelTables::State& state = tables_.state.get();
  const std::lock_guard lock(state.mutex);
  const LoadedKernel* found = tables_.of(which).find(wanted.exact);
  if (found && wanted.given) tables_.of(which).insert(*wanted.given, found);
  return found;
}

const LoadedKernel& KernelMaker::make(const Wanted& wanted, const GetRequest& request,
                                      const KeepAlive& keep) {
  check_kept(wanted, request);
  check_unsealed(wanted, request);
  check_current_context(wanted);
  source::Instantiation unit = source::instantiate(origin_, wanted.resolved, request.which);
  ObtainOptions options = loader_.options_of(request);
  options.files = wanted.files;
  Obtained obtained = core_.obtain(unit, options);
  return loader_.load_once(wanted, std::move(unit), std::move(obtained), request, keep);
}

const LoadedKernel* KernelMaker::make_at_once(const Wanted& wanted, const GetRequest& request,
                                              const KeepAlive& keep) try {
  GetRequest quick = request;
  quick.deadline = earlier(request.deadline, base::Deadline::after(kLoadPatience));
  source::Instantiation unit = source::instantiate(origin_, wanted.resolved);
  auto obtained = core_.path().there(unit, loader_.options_of(quick));
  quick.may_compile = false;
  return obtained ? &loader_.load_once(wanted, std::move(unit), std::move(*obtained), quick, keep) : nullptr;
} catch (const Error& error) {
  base::info("a fallback serves: " + std::string(error.what()));
  return nullptr;
}

Obtained KernelMaker::obtain(const Wanted& wanted, const GetRequest& request) {
  return core_.obtain(source::instantiate(origin_, wanted.resolved, request.which),
                      loader_.options_of(request));
}

Wanted KernelMaker::want_soon(std::span<const Value> values, const GetRequest& request) const {
  Wanted wanted = calls_.want(values, request, Disk::left_alone, source::Archs::any);
  if (!is_open(core_, wanted, request.asked()) || captures(request)) return wanted;
  GetRequest quick = request;
  quick.deadline = earlier(request.deadline, base::Deadline::after(kLoadPatience));
  Wanted asked = calls_.decided(wanted, quick);
  asked.given = wanted.given;  // for the table of chosen kernels, where adoption replaces it
  asked.files.reset();         // the kernel may be made later, from the files of then
  return asked;
}

std::uint64_t KernelMaker::epoch() {
  KernelTables::State& state = tables_.state.get();
  const std::lock_guard lock(state.mutex);
  return state.epoch;
}

std::vector<std::string> KernelMaker::adopt_own_arch() {
  KernelTables::State& state = tables_.state.get();
  const std::lock_guard lock(state.mutex);
  return loader_.adopt_own_arch_locked(state);
}

/// Throws when the scope was released: such a kernel is neither compiled nor loaded.
void KernelMaker::check_kept(const Wanted& wanted, const GetRequest& request) {
  if (request.epoch && *request.epoch != epoch())
    throw Error(Errc::not_ready, wanted.name() + " was not made: its scope was released meanwhile");
}

void KernelMaker::check_unsealed(const Wanted& wanted, const GetRequest& request) {
  if (request.own_thread && !core_.permission(request.asked()).disk)
    core_.misses().refuse_when_sealed(*origin_, wanted.resolved, request.asked());
}

void KernelMaker::check_current_context(const Wanted& wanted) const {
  CUcontext current = nullptr;
  const std::string doing = "loading " + wanted.name();
  target_.driver->check(target_.driver->cuCtxGetCurrent(&current), "cuCtxGetCurrent", doing);
  if (current != target_.context) {
    throw Error(Errc::no_driver, doing + ": template '" + origin_->manifest.name +
                                     "' was opened in another context; make that one current in this thread");
  }
  target_.check_context(doing);  // a destroyed context stays current in other threads
}

}  // namespace kiln::runtime
