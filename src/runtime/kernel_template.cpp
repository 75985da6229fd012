#include "runtime/kernel_template.hpp"

#include "base/log.hpp"
#include "kiln/error.hpp"
#include "runtime/service.hpp"

namespace kiln::runtime {

using namespace toolchain;

KernelTemplate::KernelTemplate(Service& service, std::shared_ptr<const source::Template> origin,
                               Target target)
    : service_(service), origin_(std::move(origin)), target_(std::move(target)) {
  if (origin_->manifest.slots.total() > kMaxSlots) {
    throw Error(Errc::manifest, origin_->manifest.file + ": more than " + std::to_string(kMaxSlots) +
                                    " parameters, derives, arguments and run-time values together");
  }
}

/// Values as they were given, before defaults; false when they cannot be packed without looking at text (the
/// slow path then finds the same kernel by its resolved specialisation).
bool KernelTemplate::pack(std::span<const Value> values, PackedParameters& out) const noexcept {
  const auto& parameters = origin_->manifest.parameters;
  if (values.size() > parameters.size()) return false;
  out.count = static_cast<std::uint32_t>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Value& v = values[i];
    const source::ParameterKind kind = parameters[i].kind;
    switch (v.kind) {
      case Value::Kind::unset:
        out.values[i] = PackedParameters::kUnset;
        break;
      case Value::Kind::integer:
        if (kind != source::ParameterKind::integer || v.integer == PackedParameters::kUnset) return false;
        out.values[i] = v.integer;
        break;
      case Value::Kind::boolean:
        if (kind != source::ParameterKind::boolean) return false;
        out.values[i] = v.integer;
        break;
      case Value::Kind::dtype:
        if (kind != source::ParameterKind::dtype) return false;
        out.values[i] = v.integer;
        break;
      case Value::Kind::text: {
        const source::ParameterSpec::Choice* found = nullptr;
        for (const auto& choice : parameters[i].choices) {
          if (choice.name == v.text) found = &choice;
        }
        if (!found) return false;
        out.values[i] = found->value;
        break;
      }
      default:
        return false;  // a caller's kind that does not exist
    }
  }
  return true;
}

LoadedKernel* KernelTemplate::try_get(std::span<const Value> values) const noexcept {
  PackedParameters packed;
  return pack(values, packed) ? ready_.find(packed) : nullptr;
}

LoadedKernel& KernelTemplate::get(std::span<const Value> values, const GetRequest& request) {
  PackedParameters packed;
  const bool is_packed = pack(values, packed);
  const ReadyTable& table = request.which == source::Which::kernel ? ready_ : ready_references_;
  if (is_packed) {
    if (LoadedKernel* ready = table.find(packed)) return *ready;
  }
  return make_ready(values, is_packed ? &packed : nullptr, request);
}

void KernelTemplate::refuse_in_capture(const GetRequest& request, const source::Resolved& resolved) const {
  if (!request.stream) return;
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  target_.driver->check(target_.driver->cuStreamIsCapturing(*request.stream, &status), "cuStreamIsCapturing");
  if (status != CU_STREAM_CAPTURE_STATUS_NONE) {
    throw Error(Errc::not_ready, resolved.specialization.to_string() +
                                     " is not ready, and the stream is capturing: get it before the capture");
  }
}

LoadedKernel& KernelTemplate::make_ready(std::span<const Value> values, const PackedParameters* packed,
                                         const GetRequest& request) {
  if (!target_.driver) {
    throw Error(Errc::no_driver, "template '" + origin_->manifest.name +
                                     "' was opened without a device: it compiles (compile()), "
                                     "and cannot load. " +
                                     Driver::load_error());
  }
  const source::Resolved resolved = source::resolve(origin_->manifest, values, target_.arch);
  ReadyTable& table = request.which == source::Which::kernel ? ready_ : ready_references_;
  const std::pair name{request.which, resolved.specialization.to_string()};
  const auto enter = [&](LoadedKernel& kernel) -> LoadedKernel& {
    if (packed) table.insert(*packed, &kernel);
    return kernel;
  };
  {
    std::lock_guard lock(loading_);
    if (const auto found = kernels_.find(name); found != kernels_.end()) return enter(*found->second);
  }
  if (request.which == source::Which::kernel) service_.record(*origin_, resolved);
  service_.refuse_when_sealed(resolved.specialization);
  refuse_in_capture(request, resolved);
  const source::Instantiation unit = source::instantiate(origin_, resolved, request.which);
  std::unique_ptr<LoadedKernel> made =
      load(unit, {.deadline = request.deadline, .may_compile = service_.may_compile()});
  std::lock_guard lock(loading_);
  auto& slot = kernels_[name];  // two threads may have loaded it: the first stays, its address may be in use
  if (!slot) {
    Counters& counters = service_.pipeline().counters();
    ++counters.loads;
    counters.device_bytes += made->image().bytes.size();
    slot = std::move(made);
  }
  return enter(*slot);
}

/// The driver decides whether a record of another toolchain will do: what it refuses is rejected and the path
/// is walked again.
std::unique_ptr<LoadedKernel> KernelTemplate::load(const source::Instantiation& unit, ObtainOptions options) {
  const Driver& driver = *target_.driver;
  const std::string what = unit.resolved.specialization.to_string();
  CUcontext current = nullptr;
  driver.check(driver.cuCtxGetCurrent(&current), "cuCtxGetCurrent");
  if (current != target_.context) {
    throw Error(Errc::no_driver, "loading " + what + ": template '" + origin_->manifest.name +
                                     "' was opened in another context; make that one current in this thread");
  }
  for (;;) {
    Obtained obtained = service_.pipeline().obtain(unit, options);
    std::string refusal;
    auto library = Library::load(driver, obtained.image->bytes, obtained.image->facts.lowered_name,
                                 "loading " + what, refusal);
    if (library) {
      return std::make_unique<LoadedKernel>(driver, target_.device, origin_, unit.which, unit.resolved,
                                            std::move(obtained), std::move(*library));
    }
    if (obtained.outcome == Outcome::compiled || !options.rejected.insert(obtained.image->key).second) {
      throw Error(Errc::driver,
                  "the driver refuses the image of " + what + " for " + target_.arch.name() + ": " + refusal +
                      " (is the driver older than the toolkit? 13.x cubins need driver 580 or newer)");
    }
    base::warn_once("refused " + obtained.image->key.hex(),
                    "the driver refuses a cached image of " + what + " (" + refusal + "); trying the next");
  }
}

Obtained KernelTemplate::compile(std::span<const Value> values) {
  const source::Resolved resolved = source::resolve(origin_->manifest, values, target_.arch);
  service_.record(*origin_, resolved);
  service_.refuse_when_sealed(resolved.specialization);
  return service_.pipeline().obtain(source::instantiate(origin_, resolved),
                                    {.may_compile = service_.may_compile()});
}

}  // namespace kiln::runtime
