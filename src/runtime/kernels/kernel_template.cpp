#include "runtime/kernels/kernel_template.hpp"

#include <algorithm>

#include "base/hash.hpp"
#include "kiln/error.hpp"
#include "runtime/kernels/kernel_template_state.hpp"
#include "runtime/service/service.hpp"
#include "runtime/tuned/pinned_choices.hpp"

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

TunedCall KernelTemplate::resolve(std::span<const Value> values, const GetRequest& request,
                                  source::Archs archs) const {
  return resolve(values, request, archs, Disk::asked);
}

/// A sealed service reads no disk: what was resolved before the seal holds.
TunedCall KernelTemplate::resolve(std::span<const Value> values, const GetRequest& request,
                                  source::Archs archs, Disk disk) const {
  const bool memory_only = service_.is_sealed() && !request.past_seal;
  return resolve_tuned(service_.pipeline(), origin_, values, target_.arch, target_.device.name, archs,
                       memory_only ? Disk::left_alone : disk, request.deadline);
}

KernelTemplate::Wanted KernelTemplate::want(std::span<const Value> values, const GetRequest& request,
                                            Disk disk, source::Archs archs) const {
  Wanted wanted;
  TunedCall call = resolve(values, request, archs, disk);
  wanted.resolved = std::move(call.resolved), wanted.undecided = std::move(call.undecided);
  if (request.which == source::Which::kernel) wanted.prepared = std::move(call.prepared);
  wanted.exact.set(wanted.resolved.slots.data(), parameters_);
  const bool asked = disk == Disk::asked && !(service_.is_sealed() && !request.past_seal);
  if (asked && !wanted.undecided.empty()) return wanted;  // whoever says it next may be told
  kiln_value given[source::kMaxParameters];
  for (std::size_t i = 0; i < values.size(); ++i) given[i] = kiln::detail::to_c(values[i]);
  PackedParameters packed;
  if (pack_with_care(nullptr, given, values.size(), packed)) wanted.given = packed;
  return wanted;
}

KernelTemplate::Wanted KernelTemplate::decided(Wanted wanted, const GetRequest& request) const {
  if (wanted.undecided.empty()) return wanted;
  const auto& [template_name, parameters] = wanted.resolved.specialization;
  const std::vector<std::string>& open = wanted.resolved.open;
  std::vector<Value> values;
  for (const Parameter& p : parameters)
    values.push_back(std::find(open.begin(), open.end(), p.name) != open.end()
                         ? Value()
                         : Value(std::string_view(p.value)));
  Wanted out = want(values, request, Disk::asked, source::Archs::any);
  out.given = out.undecided.empty() ? wanted.given : std::nullopt;
  return out;
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

/// By its resolved parameters; the caller's own way of saying them is remembered. What a sealed service
/// serves by default is what the process stays with.
const LoadedKernel* KernelTemplate::ready(const Wanted& wanted, source::Which which) {
  const LoadedKernel* found = table(which).find(wanted.exact);
  if (!found) return nullptr;
  if (!wanted.undecided.empty()) {
    if (!service_.is_sealed()) return found;
    pin_choice(wanted.undecided, {});
  }
  if (!wanted.given) return found;
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  table(which).insert(*wanted.given, found);
  return found;
}

const LoadedKernel* KernelTemplate::ready_behind(const Wanted& wanted, source::Which which) {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  const LoadedKernel* found = table(which).find(wanted.exact);
  if (found && wanted.given) table(which).insert(*wanted.given, found);
  return found;
}

void KernelTemplate::refuse_in_capture(const Wanted& wanted) const {
  throw Error(Errc::not_ready,
              wanted.name() + " is not ready, and " +
                  (capturing_here() ? "this thread is in a CaptureScope" : "the stream is capturing") +
                  ": get it before the capture");
}

const LoadedKernel& KernelTemplate::get(std::span<const Value> values, const GetRequest& request) {
  check_usable();
  Wanted wanted = want(values, request, Disk::left_alone);
  if (!wanted.undecided.empty() && !(service_.is_sealed() && !request.past_seal)) {
    if (captures(request)) {  // before any store is read
      admit(wanted, request);
      refuse_in_capture(wanted);
    }
    wanted = decided(std::move(wanted), request);
  }
  if (const LoadedKernel* found = ready(wanted, request.which)) return *found;
  admit(wanted, request);
  if (captures(request)) refuse_in_capture(wanted);
  return make(wanted, request);
}

ObtainOptions KernelTemplate::options_of(const GetRequest& request) const noexcept {
  return {.deadline = request.deadline,
          .may_compile = request.may_compile && (request.past_seal || service_.may_compile()),
          .any_toolchain = !service_.may_compile(),
          .rejected = {},
          .when_full = WhenFull::skip,
          .urgency = request.urgency,
          .arguments = Arguments::as_declared,
          .tier = request.past_seal || (request.may_compile &&
                                        (service_.may_compile() || service_.config().remote_when_sealed()))
                      ? AskTier::yes
                      : AskTier::no};
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
  ObtainOptions options = options_of(request);
  options.prepared = wanted.prepared;
  Obtained obtained = service_.obtain(unit, options);
  return load_once(wanted, std::move(unit), std::move(obtained), request);
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
