#include "runtime/service/service.hpp"

#include "base/hash.hpp"
#include "base/log.hpp"
#include "kiln/error.hpp"
#include "runtime/state/refusal.hpp"

namespace kiln::runtime {

using namespace toolchain;

Service::Service(const Options& options, const std::string& memo_file, Events events)
    : config_(Config::resolve(options)),
      mode_(config_.mode()),
      mode_is_set_(config_.mode_is_set()),
      adopt_(options.adopt),
      events_(events),
      catalog_(config_.template_directories(), config_.about_templates()),
      recorder_(config_.get("record")),
      pipeline_(config_, memo_file, events),
      background_([this] { return pipeline_.workers().jobs() + 2; }),  // two load while the others compile
      own_(*this) {
  join_process_seal();
  if (mode() == Mode::sealed) pipeline_.tier();  // opened now: what is missed later touches no file
}

Service::~Service() {
  pipeline_.end_compiles();  // which the work behind callers' backs may be waiting for
  background_.stop();
}

base::Arch Service::default_arch(const std::string& arch) const {
  const std::string& configured = config_.get("arch");
  return base::Arch::parse(!arch.empty() ? arch : !configured.empty() ? configured : "sm_90a");
}

Target Service::bind(int device, const std::string& arch) const {
  Target target;
  if (device == KILN_DEVICE_NONE) {
    target.arch = default_arch(arch);
    target.device.name = tuned_for_;
    return target;
  }
  if (device < KILN_DEVICE_CURRENT)
    throw Error(Errc::invalid_argument, "device " + std::to_string(device) +
                                            " is neither an ordinal nor KILN_DEVICE_CURRENT or _NONE");
  const Driver* driver = Driver::get();
  if (!driver) {
    throw Error(Errc::no_driver, "no CUDA driver (" + Driver::load_error() +
                                     "); without a GPU, open with Device::none() and compile()");
  }
  Driver::refuse_in_forked_child("opening a template");
  const CUresult got = driver->cuCtxGetCurrent(&target.context);
  if (got != CUDA_SUCCESS || !target.context) {
    throw Error(Errc::no_driver,
                "no CUDA context is current in this thread" +
                    (got != CUDA_SUCCESS ? " (" + driver->describe(got) + ")" : std::string()) +
                    ": call cudaSetDevice, cuDevicePrimaryCtxRetain + cuCtxSetCurrent or the like first; "
                    "kiln makes none");
  }
  CUdevice ordinal = 0;
  driver->check(driver->cuCtxGetDevice(&ordinal), "cuCtxGetDevice");
  if (device >= 0 && device != ordinal) {
    throw Error(Errc::invalid_argument, "device " + std::to_string(device) +
                                            " was asked for, and the current context is on device " +
                                            std::to_string(ordinal));
  }
  unsigned long long id = 0;
  driver->check(driver->cuCtxGetId(target.context, &id), "cuCtxGetId");
  target.context_id = id;
  target.driver = driver;
  target.device = device_facts(*driver, ordinal);
  target.arch = target.device.arch;
  if (!arch.empty() && base::Arch::parse(arch) != target.arch)
    throw Error(Errc::invalid_argument, "arch " + arch + " was asked for, and the current device is " +
                                            target.arch.name() + "; another arch needs Device::none(arch)");
  return target;
}

void Service::enter(Scope& scope) {
  Scopes& scopes = scopes_.get();
  const std::lock_guard lock(scopes.mutex);
  scopes.all.insert(&scope);
}

void Service::leave(Scope& scope) noexcept {
  Scopes& scopes = scopes_.get();
  const std::lock_guard lock(scopes.mutex);
  scopes.all.erase(&scope);
}

std::vector<std::shared_ptr<KernelTemplate>> Service::templates() {
  auto out = own_.templates();  // a forked child has this scope without having entered it
  Scopes& scopes = scopes_.get();
  const std::lock_guard lock(scopes.mutex);
  for (Scope* scope : scopes.all) {
    if (scope == &own_) continue;
    for (auto& opened : scope->templates()) out.push_back(std::move(opened));
  }
  return out;
}

std::uint64_t Service::adopt() {
  std::uint64_t adopted = 0;
  for (const auto& opened : templates()) adopted += opened->adopt();
  return adopted;
}

Digest Service::fingerprint() {
  std::set<std::string> lines;
  for (const auto& opened : templates()) opened->describe_loaded(lines);
  std::string text = "kiln fingerprint 1\n";
  for (const std::string& line : lines) text += line + '\n';
  return base::digest_of(text);
}

void Service::seal() {
  sealed_ = true;
  pipeline_.tier();
  if (mode() == Mode::sealed) return;
  const Setting& told = config_.setting("mode");
  base::warn_once("seal " + told.value + ' ' + told.origin,
                  "seal() changes nothing: mode = '" + told.value + "' (from " + told.origin +
                      ") compiles kernels that are not ready" +
                      (mode() == Mode::warn ? ", with a warning for each" : "") +
                      "; for a seal that refuses them, leave the mode unset or set it to sealed");
}

Mode Service::mode() const noexcept {
  return !mode_is_set_ && (sealed_ || process_is_sealed()) ? Mode::sealed : mode_;
}

bool Service::misses(const source::Template& origin, const source::Resolved& resolved) {
  const Mode now = mode();
  if (now == Mode::jit || !(sealed_ || process_is_sealed())) return false;
  const std::string name = resolved.specialization.to_string();
  if (now == Mode::sealed) {
    ++pipeline_.counters().sealed_misses;
    note_missing(resolved);
    recorder_.record(origin, resolved, Recorder::When::later);
  } else {
    base::warn("after the seal: " + name + " was not ready");
  }
  events_.tell(KILN_EVENT_MISS_AFTER_SEAL, name, resolved.arch.name(), {});
  return now == Mode::sealed;
}

void Service::note_missing(const source::Resolved& resolved) {
  std::string row = missing_.add(resolved);
  if (row.empty() || !config_.has_remote()) return;
  if (pipeline_.tier_is_open()) return pipeline_.report_missing(std::move(row));
  // It reads files, which a sealed service and a capture do not.
  background_.run(Background::Work::ahead, [this, row = std::move(row)](const char* why_not) {
    if (!why_not) pipeline_.report_missing(row);
  });
}

void Service::refuse_when_sealed(const source::Template& origin, const source::Resolved& resolved) {
  if (!misses(origin, resolved)) return;
  throw Error(Errc::not_ready,
              "sealed: " + resolved.specialization.to_string() + " is not in memory" + remedy(resolved));
}

Obtained Service::obtain(const source::Instantiation& unit, const ObtainOptions& options) {
  try {
    return pipeline_.obtain(unit, options);
  } catch (const Error& error) {
    if (error.code() == Errc::not_ready && !may_compile()) note_missing(unit.resolved);
    throw;
  }
}

}  // namespace kiln::runtime
