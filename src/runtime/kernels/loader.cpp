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
    if (!loading->begun.exchange(true)) load_and_land(wanted, unit, std::move(obtained), request, *loading);
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
    if (loading->epoch == state.epoch) tables_.of(request.which).insert(*wanted.given, &kernel);
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
      load_and_land(wanted, unit, obtained, request, *loading);
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
                                 const GetRequest& request, Loading& loading) noexcept {
  KernelTables::State& state = tables_.state.get();
  try {
    const base::NvtxRange range([&] { return "kiln load " + wanted.name(); });
    const Stopwatch watch;
    std::unique_ptr<LoadedKernel> made = load(unit, std::move(obtained), options_of(request));
    const LoadedKernel* const kernel = made.get();
    const double ms = watch.ms();
    const std::size_t bytes = made->image().bytes.size();
    std::vector<std::string> adopted;
    {
      const std::lock_guard lock(state.mutex);
      if (loading.epoch != state.epoch)
        throw Error(Errc::not_ready, wanted.name() + " was not kept: its scope was released meanwhile");
      state.kernels.push_back(std::move(made));
      tables_.of(request.which).insert(wanted.exact, kernel);
      if (core_.adopts_automatically()) adopted = fallbacks_.adopt_locked(state);
      state.loading.erase(loading.key);
    }
    Counters& counters = core_.state().counters;
    ++counters.loads;
    counters.device_bytes += bytes;
    core_.events().tell(KILN_EVENT_LOADED, wanted.name(), target_.arch.name(),
                        {.milliseconds = ms, .bytes = bytes});
    fallbacks_.tell_adopted(adopted);
    loading.promise.set_value(kernel);
  } catch (...) {
    give_up(loading, std::current_exception());
  }
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
      return std::make_unique<LoadedKernel>(driver, target_.device, origin_, unit.which, unit.resolved,
                                            std::move(obtained),
                                            std::make_shared<const Library>(std::move(*library)));
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
