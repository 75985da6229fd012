#include "runtime/kernel_template.hpp"

#include "base/hash.hpp"
#include "base/log.hpp"
#include "kiln/error.hpp"
#include "runtime/kernel_template_state.hpp"
#include "runtime/service.hpp"

namespace kiln::runtime {

using namespace toolchain;

namespace {

std::int64_t number_kind(source::ParameterKind kind) noexcept {
  switch (kind) {
    case source::ParameterKind::integer:
      return KILN_VALUE_INTEGER;
    case source::ParameterKind::boolean:
      return KILN_VALUE_BOOLEAN;
    case source::ParameterKind::dtype:
      return KILN_VALUE_DTYPE;
    default:
      return INT64_MAX;  // no kind of a value: an enum's values are named
  }
}

[[noreturn]] void fail_undone(const std::string& what, const char* why_not) {
  throw Error(Errc::not_ready, what + " was not made: " + why_not);
}

}  // namespace

void Target::check_context(const std::string& doing) const {
  unsigned long long id = 0;
  CUresult result = driver->cuCtxGetId(context, &id);
  if (result == CUDA_SUCCESS && id != context_id) result = CUDA_ERROR_CONTEXT_IS_DESTROYED;  // another, there
  driver->check(result, "cuCtxGetId", doing);
}

/// Every launch has room for so many: those of the further entry points as well.
static void check_slots(const source::Manifest& manifest) {
  if (manifest.slots.total() > kMaxSlots) {
    throw Error(Errc::manifest,
                manifest.file + ": " +
                    (manifest.entry.empty() ? "" : "[[kernel]] '" + manifest.entry + "' has ") +
                    "more than " + std::to_string(kMaxSlots) +
                    " parameters, derives, arguments, run-time values and exports together");
  }
  for (const auto& entry : manifest.entries) check_slots(*entry);
}

KernelTemplate::KernelTemplate(Service& service, std::shared_ptr<const source::Template> origin,
                               Target target)
    : service_(service),
      origin_(std::move(origin)),
      target_(std::move(target)),
      parameters_(static_cast<std::uint32_t>(origin_->manifest.parameters.size())) {
  const source::Manifest& m = origin_->manifest;
  check_slots(m);
  for (const auto& [arch, variant] : m.variants) check_slots(*variant);
  for (std::size_t i = 0; i < m.parameters.size(); ++i) kinds_[i] = number_kind(m.parameters[i].kind);
}

KernelTemplate::~KernelTemplate() = default;

/// A sealed service reads no disk: what was resolved before the seal holds.
TunedCall KernelTemplate::resolve(std::span<const Value> values, const GetRequest& request,
                                  source::Archs archs) const {
  const bool memory_only = service_.is_sealed() && !request.past_seal;
  return resolve_tuned(service_.pipeline(), origin_, values, target_.arch, target_.device.name, archs,
                       memory_only ? Disk::left_alone : Disk::asked, request.deadline);
}

KernelTemplate::Wanted KernelTemplate::want(std::span<const Value> values, const GetRequest& request,
                                            source::Archs archs) const {
  Wanted wanted;
  wanted.resolved = resolve(values, request, archs).resolved;
  wanted.exact.set(wanted.resolved.slots.data(), parameters_);
  kiln_value given[source::kMaxParameters];
  for (std::size_t i = 0; i < values.size(); ++i) given[i] = kiln::detail::to_c(values[i]);
  PackedParameters packed;
  if (pack_with_care(nullptr, given, values.size(), packed)) wanted.given = packed;
  return wanted;
}

void KernelTemplate::check_usable() const {
  if (!target_.driver) {
    throw Error(Errc::no_driver, "template '" + origin_->manifest.name +
                                     "' was opened without a device: it compiles (compile()), "
                                     "and cannot load. " +
                                     Driver::load_error());
  }
  if (generation_ != base::process_generation())
    Driver::refuse_in_forked_child("getting a kernel of template '" + origin_->manifest.name + '\'');
}

bool KernelTemplate::captures(const GetRequest& request) const {
  if (capturing_here()) return true;
  if (!request.stream) return false;
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  target_.driver->check(target_.driver->cuStreamIsCapturing(*request.stream, &status), "cuStreamIsCapturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void KernelTemplate::admit(const Wanted& wanted, const GetRequest& request) {
  if (!request.past_seal) service_.refuse_when_sealed(*origin_, wanted.resolved);  // which touches no file
  if (request.which == source::Which::kernel) service_.record(*origin_, wanted.resolved);
}

/// By its resolved parameters; the caller's own way of saying them is remembered.
const LoadedKernel* KernelTemplate::ready(const Wanted& wanted, source::Which which) {
  const LoadedKernel* found = table(which).find(wanted.exact);
  if (!found || !wanted.given) return found;
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  table(which).insert(*wanted.given, found);
  return found;
}

const LoadedKernel& KernelTemplate::get(std::span<const Value> values, const GetRequest& request) {
  check_usable();
  const Wanted wanted = want(values, request);
  if (const LoadedKernel* found = ready(wanted, request.which)) return *found;
  admit(wanted, request);
  if (captures(request)) {
    throw Error(Errc::not_ready,
                wanted.name() + " is not ready, and " +
                    (capturing_here() ? "this thread is in a CaptureScope" : "the stream is capturing") +
                    ": get it before the capture");
  }
  return make(wanted, request);
}

ObtainOptions KernelTemplate::options_of(const GetRequest& request) const noexcept {
  return {.deadline = request.deadline,
          .may_compile = request.may_compile && (request.past_seal || service_.may_compile()),
          .any_toolchain = !service_.may_compile(),
          .urgency = request.urgency};
}

const LoadedKernel& KernelTemplate::make(const Wanted& wanted, const GetRequest& request) {
  check_kept(wanted, request);
  check_unsealed(wanted, request);
  CUcontext current = nullptr;
  const std::string doing = "loading " + wanted.name();
  target_.driver->check(target_.driver->cuCtxGetCurrent(&current), "cuCtxGetCurrent", doing);
  if (current != target_.context) {
    throw Error(Errc::no_driver, doing + ": template '" + origin_->manifest.name +
                                     "' was opened in another context; make that one current in this thread");
  }
  target_.check_context(doing);  // to other threads than its destroyer's it stays current
  source::Instantiation unit = source::instantiate(origin_, wanted.resolved, request.which);
  Obtained obtained = service_.obtain(unit, options_of(request));
  return load_once(wanted, std::move(unit), std::move(obtained), request);
}

KernelFuture KernelTemplate::get_async(std::span<const Value> values, const GetRequest& request) {
  check_usable();
  Wanted wanted = want(values, request);
  const auto promise = std::make_shared<std::promise<const LoadedKernel*>>();
  KernelFuture result = promise->get_future().share();
  if (const LoadedKernel* found = ready(wanted, request.which)) {
    promise->set_value(found);
    return result;
  }
  admit(wanted, request);
  GetRequest own = request;
  own.stream.reset(), own.own_thread = true, own.epoch = epoch();
  service_.background().run(Background::Work::caller, [self = shared_from_this(), wanted = std::move(wanted),
                                                       own, promise](const char* why_not) {
    try {
      if (why_not) fail_undone(wanted.name(), why_not);
      const CurrentContext current(self->target_, "loading " + wanted.name());
      promise->set_value(&self->make(wanted, own));
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  });
  return result;
}

std::optional<Outcome> KernelTemplate::get_on_own_thread(std::span<const Value> values, GetRequest request) {
  check_usable();
  const Wanted wanted = want(values, request);
  State& state = state_.get();
  {
    const std::lock_guard lock(state.mutex);  // nobody keeps a release away from this thread
    if (table(request.which).find(wanted.exact)) return std::nullopt;
  }
  admit(wanted, request);
  request.own_thread = true;
  const CurrentContext current(target_, "loading " + wanted.name());
  const LoadedKernel& made = make(wanted, request);
  const std::lock_guard lock(state.mutex);
  if (request.epoch && *request.epoch != state.epoch)
    throw Error(Errc::not_ready, wanted.name() + " was not kept: its scope was released meanwhile");
  return made.outcome();
}

void KernelTemplate::prefetch(std::span<const Value> values) {
  if (target_.driver) check_usable();
  const Wanted wanted = want(values, {});
  if (ready(wanted, source::Which::kernel)) return;
  admit(wanted, {});
  make_behind(wanted);
}

/// One at a time for each specialisation. Its failure is remembered by the pipeline, and told as an event.
void KernelTemplate::make_behind(const Wanted& wanted) {
  State& state = state_.get();
  GetRequest request;
  request.urgency = compile::Urgency::ahead, request.own_thread = true;
  {
    const std::lock_guard lock(state.mutex);
    if (!state.behind.insert(wanted.name()).second) return;
    request.epoch = state.epoch;
  }
  const auto ended = [self = shared_from_this(), name = wanted.name(), request] {
    State& own = self->state_.get();
    const std::lock_guard lock(own.mutex);
    if (own.epoch == request.epoch) own.behind.erase(name);
  };
  const auto work = [self = shared_from_this(), wanted, request, ended](const char* why_not) {
    try {
      if (why_not) fail_undone(wanted.name(), why_not);
      if (self->target_.driver) {
        const CurrentContext current(self->target_, "loading " + wanted.name());
        self->make(wanted, request);
      } else {
        self->check_unsealed(wanted, request);
        self->service_.obtain(source::instantiate(self->origin_, wanted.resolved), self->options_of(request));
      }
    } catch (const std::exception& error) {
      base::info("made ahead of need: " + std::string(error.what()));
    }
    ended();
  };
  try {
    service_.background().run(Background::Work::ahead, work);
  } catch (...) {
    ended();
    throw;
  }
}

Obtained KernelTemplate::compile(std::span<const Value> values, const GetRequest& request) {
  const Wanted wanted = want(values, request);
  admit(wanted, request);
  return service_.obtain(source::instantiate(origin_, wanted.resolved, request.which), options_of(request));
}

void KernelTemplate::release() {
  State& state = state_.get();
  std::vector<std::unique_ptr<LoadedKernel>> gone;  // the driver is called without the lock
  {
    const std::lock_guard lock(state.mutex);
    ++state.epoch;
    ready_.clear(), ready_references_.clear(), chosen_.clear();
    state.pending.clear(), state.loading.clear(), state.behind.clear();
    gone = std::move(state.kernels);
    state.kernels.clear();
  }
  for (const auto& kernel : gone) service_.pipeline().counters().device_bytes -= kernel->image().bytes.size();
}

std::uint64_t KernelTemplate::epoch() {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  return state.epoch;
}

/// What nobody is there for any more is neither compiled nor loaded.
void KernelTemplate::check_kept(const Wanted& wanted, const GetRequest& request) {
  if (request.epoch && *request.epoch != epoch())
    throw Error(Errc::not_ready, wanted.name() + " was not made: its scope was released meanwhile");
}

/// What was queued before the seal and comes to its turn after it is a miss.
void KernelTemplate::check_unsealed(const Wanted& wanted, const GetRequest& request) {
  if (request.own_thread && !request.past_seal && service_.is_sealed())
    service_.refuse_when_sealed(*origin_, wanted.resolved);
}

void KernelTemplate::describe_loaded(std::set<std::string>& out) {
  State& state = state_.get();
  std::vector<std::pair<std::string, std::shared_ptr<const StoredImage>>> loaded;
  {
    const std::lock_guard lock(state.mutex);
    for (const auto& kernel : state.kernels)
      loaded.emplace_back(kernel->specialization(), kernel->shared_image());
    for (const State::Pending& p : state.pending) out.insert(p.wanted.name() + " runs its fallback");
  }
  for (const auto& [name, image] : loaded)
    out.insert(name + ' ' + target_.arch.name() + ' ' + origin_->digest.hex() + ' ' +
               base::digest_of(image->bytes).hex());
}

}  // namespace kiln::runtime
