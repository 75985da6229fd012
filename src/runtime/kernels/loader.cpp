#include "runtime/kernels/loader.hpp"

#include "base/log.hpp"
#include "base/nvtx.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {

using namespace toolchain;

namespace {

WantedOfLibrary wanted_of(const compile::Facts& facts) {
  WantedOfLibrary out;
  out.kernels.push_back(facts.lowered_name);
  for (const compile::EntryFacts& entry : facts.entries) out.kernels.push_back(entry.lowered_name);
  for (const compile::GlobalFact& global : facts.globals) out.globals.push_back(global.lowered_name);
  return out;
}

}  // namespace

ObtainOptions KernelLoader::options_of(const GetRequest& request) const noexcept {
  ObtainOptions out;
  out.deadline = request.deadline;
  out.permission = core_.permission(request.asked());
  out.urgency = request.urgency;
  out.any_arch = target_.driver && request.which == source::Which::kernel;
  return out;
}

/// The load of this kernel that is under way, or a new one; `first` says that it is new. Null when the kernel
/// is loaded already; `there` is then that kernel.
std::shared_ptr<Loading> KernelLoader::loading_of(const Wanted& wanted, const GetRequest& request,
                                                  bool& first, const LoadedKernel*& there) {
  KernelTables::State& state = tables_.state.get();
  const std::lock_guard lock(state.mutex);
  if (request.epoch && *request.epoch != state.epoch)
    throw Error(Errc::not_ready, wanted.name() + " was not loaded: its scope was released meanwhile");
  there = tables_.of(request.which).find(wanted.exact);
  if (there) return nullptr;
  auto& loading = state.loading[{request.which, wanted.name()}];
  first = !loading;
  if (first) {
    loading = std::make_shared<Loading>();
    loading->epoch = state.epoch;
    loading->key = {request.which, wanted.name()};
  }
  return loading;
}

const LoadedKernel& KernelLoader::load_once(const Wanted& wanted, source::Instantiation unit,
                                            Obtained obtained, const GetRequest& request,
                                            const KeepAlive& keep) {
  bool first = false;
  const LoadedKernel* there = nullptr;
  const std::shared_ptr<Loading> loading = loading_of(wanted, request, first, there);
  if (there) return *there;
  const bool patient = request.deadline.at() == base::Clock::time_point::max();
  if (patient) {
    // This also does a load that a caller with a deadline has queued: all of kiln's threads may be waiting
    // here, and none may be left for the queue.
    if (!loading->begun.exchange(true))
      load_and_land(wanted, unit, std::move(obtained), request, *loading, keep);
  } else if (first) {
    load_behind(wanted, std::move(unit), std::move(obtained), request, loading, keep);
  }
  if (!patient && loading->result.wait_until(request.deadline.at()) != std::future_status::ready) {
    throw Error(Errc::deadline, "the deadline passed while the driver was loading " + wanted.name() +
                                    " (the load goes on; kernels that run on the device can delay it)");
  }
  const LoadedKernel& kernel = *loading->result.get();
  if (wanted.given) {
    KernelTables::State& state = tables_.state.get();
    const std::lock_guard lock(state.mutex);
    if (loading->epoch == state.epoch) tables_.of(request.which).insert(*wanted.given, state.newest(&kernel));
  }
  return kernel;
}

void KernelLoader::load_behind(const Wanted& wanted, source::Instantiation unit, Obtained obtained,
                               const GetRequest& request, const std::shared_ptr<Loading>& loading,
                               const KeepAlive& keep) {
  const auto work = [this, keep, wanted, unit = std::move(unit), obtained = std::move(obtained), request,
                     loading](const char* why_not) {
    if (loading->begun.exchange(true)) return;
    try {
      if (why_not) throw Error(Errc::not_ready, wanted.name() + " was not loaded: " + why_not);
      const CurrentContext current(target_, "loading " + wanted.name());
      load_and_land(wanted, unit, obtained, request, *loading, keep);
    } catch (...) {
      give_up(*loading, std::current_exception());
    }
  };
  try {
    core_.background().run(Background::Work::load, work);
  } catch (...) {
    if (!loading->begun.exchange(true)) give_up(*loading, std::current_exception());
  }
}

void KernelLoader::load_and_land(const Wanted& wanted, const source::Instantiation& unit, Obtained obtained,
                                 const GetRequest& request, Loading& loading,
                                 const KeepAlive& keep) noexcept {
  KernelTables::State& state = tables_.state.get();
  try {
    const base::NvtxRange range([&] { return "kiln load " + wanted.name(); });
    const Stopwatch watch;
    std::unique_ptr<LoadedKernel> made = load(unit, std::move(obtained), options_of(request));
    const LoadedKernel* const kernel = made.get();  // a release may delete it once the mutex is free
    const bool of_other_arch = is_of_other_arch(*kernel);
    const double ms = watch.ms();
    const std::size_t bytes = made->image().bytes.size();
    std::vector<std::string> adopted;
    {
      const std::lock_guard lock(state.mutex);
      if (loading.epoch != state.epoch)
        throw Error(Errc::not_ready, wanted.name() + " was not kept: its scope was released meanwhile");
      state.kernels.push_back(std::move(made));
      if (of_other_arch) state.other_arch.push_back({wanted.name(), kernel});
      tables_.of(request.which).insert(wanted.exact, kernel);
      if (core_.adopts_automatically()) adopted = fallbacks_.adopt_locked(state);
      state.loading.erase(loading.key);
    }
    report_load(wanted.name(), bytes, ms);
    fallbacks_.tell_adopted(adopted);
    loading.promise.set_value(kernel);
    if (of_other_arch) make_own_arch_behind(kernel, unit, loading.epoch, keep);
  } catch (...) {
    give_up(loading, std::current_exception());
  }
}

void KernelLoader::report_load(const std::string& name, std::size_t bytes, double milliseconds) const {
  Counters& counters = core_.state().counters;
  ++counters.loads;
  counters.device_bytes += bytes;
  core_.events().tell(KILN_EVENT_LOADED, name, target_.arch.name(),
                      {.milliseconds = milliseconds, .bytes = bytes});
}

bool KernelLoader::is_of_other_arch(const LoadedKernel& kernel) const {
  return kernel.image().facts.arch != target_.arch.name();
}

/// The kernel in use stays as it is. The better one is stored, so that other processes and the next start get
/// it, and is loaded for adoption. `instead_of` may be deleted at any time, so only its address is used.
void KernelLoader::make_own_arch_behind(const LoadedKernel* instead_of, const source::Instantiation& unit,
                                        std::uint64_t epoch, const KeepAlive& keep) noexcept try {
  if (!core_.permission().compile) return;
  core_.background().run(Background::Work::ahead, [this, keep, instead_of, unit, epoch](const char* why_not) {
    try {
      if (!why_not) make_own_arch(instead_of, unit, epoch);
    } catch (const std::exception& error) {
      base::info("the image of another arch goes on serving " + hint(unit) + ": " + error.what());
    }
  });
} catch (const std::exception& error) {
  base::info("an image for " + target_.arch.name() + " was not asked for: " + error.what());
}

void KernelLoader::make_own_arch(const LoadedKernel* instead_of, const source::Instantiation& unit,
                                 std::uint64_t epoch) {
  GetRequest request;
  request.urgency = compile::Urgency::ahead;
  ObtainOptions options = options_of(request);
  options.any_arch = false;
  if (!options.permission.compile) return;  // a seal may have come meanwhile
  Obtained obtained = core_.obtain(unit, options);
  const CurrentContext current(target_, "loading " + hint(unit));
  const Stopwatch watch;
  std::unique_ptr<LoadedKernel> made = load(unit, std::move(obtained), options);
  const double ms = watch.ms();
  const std::size_t bytes = made->image().bytes.size();
  std::string name;
  std::vector<std::string> adopted;
  {
    KernelTables::State& state = tables_.state.get();
    const std::lock_guard lock(state.mutex);
    if (state.epoch != epoch) return;
    for (KernelOfOtherArch& other : state.other_arch)
      if (other.kernel == instead_of) other.better = made.get(), name = other.name;
    state.kernels.push_back(std::move(made));
    if (core_.adopts_automatically()) adopted = adopt_own_arch_locked(state);
  }
  report_load(name, bytes, ms);
  fallbacks_.tell_adopted(adopted);
}

std::vector<std::string> KernelLoader::adopt_own_arch_locked(KernelTables::State& state) {
  std::vector<std::string> names;
  std::erase_if(state.other_arch, [&](const KernelOfOtherArch& other) {
    if (!other.better) return false;
    for (ReadyTable* table : {&tables_.ready, &tables_.chosen})
      table->replace_everywhere(other.kernel, other.better);
    for (const auto& family : state.families) family->replace(other.kernel, other.better);
    state.replaced[other.kernel] = other.better;
    names.push_back(other.name);
    return true;
  });
  return names;
}

void KernelLoader::give_up(Loading& loading, std::exception_ptr error) noexcept {
  KernelTables::State& state = tables_.state.get();
  {
    const std::lock_guard lock(state.mutex);
    if (loading.epoch == state.epoch) state.loading.erase(loading.key);
  }
  loading.promise.set_exception(std::move(error));
}

/// The driver decides whether a record of another toolchain can be loaded. A record that it refuses is
/// rejected, and the path is walked again.
std::unique_ptr<LoadedKernel> KernelLoader::load(const source::Instantiation& unit, Obtained obtained,
                                                 ObtainOptions options) {
  const Driver& driver = *target_.driver;
  const std::string what = unit.resolved.specialization.to_string();
  for (;;) {
    std::string refusal;
    auto library = Library::load(driver, obtained.image->bytes, wanted_of(obtained.image->facts),
                                 "loading " + what, refusal);
    if (library) {
      auto loaded = std::make_shared<const Library>(std::move(*library));
      std::vector<std::string> globals;
      for (const compile::GlobalFact& global : obtained.image->facts.globals) globals.push_back(global.name);
      auto faults = fault_words_of(driver, loaded, globals, core_.config().debug(), "loading " + what);
      return std::make_unique<LoadedKernel>(driver, target_.device, origin_, unit.which, unit.resolved,
                                            std::move(obtained), std::move(loaded), std::move(faults));
    }
    if (obtained.outcome == Outcome::compiled || !options.rejected.insert(obtained.image->key).second) {
      throw Error(Errc::driver,
                  "the driver refuses the image of " + what + " for " + target_.arch.name() + ": " + refusal +
                      " (is the driver older than the toolkit? 13.x cubins need driver 580 or newer)");
    }
    base::warn_once("refused " + obtained.image->key.hex(), "the driver refuses a cached image of " + what +
                                                                " (" + refusal +
                                                                "); kiln tries the next image, or compiles");
    obtained = core_.obtain(unit, options);
  }
}

}  // namespace kiln::runtime
