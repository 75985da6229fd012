#include "runtime/kernels/behind.hpp"

#include "base/log.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {
namespace {

[[noreturn]] void fail_undone(const std::string& what, const char* why_not) {
  throw Error(Errc::not_ready, what + " was not made: " + why_not);
}

}  // namespace

KernelFuture BehindMaker::begin(Wanted wanted, const GetRequest& request, const KeepAlive& keep) {
  const auto promise = std::make_shared<std::promise<const LoadedKernel*>>();
  KernelFuture result = promise->get_future().share();
  GetRequest own = request;
  own.stream.reset(), own.own_thread = true, own.epoch = maker_.epoch();
  const bool open = is_open(maker_.core(), wanted, request.asked());
  maker_.core().background().run(Background::Work::caller, [this, keep, wanted = std::move(wanted), own,
                                                            promise, open](const char* why_not) {
    try {
      if (why_not) fail_undone(wanted.name(), why_not);
      const CurrentContext current(target_, "loading " + wanted.name());
      promise->set_value(open ? &decide_and_make(wanted, own, keep) : &maker_.make(wanted, own, keep));
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  });
  return result;
}

/// Does what `get` does after its checks.
const LoadedKernel& BehindMaker::decide_and_make(const Wanted& undecided, const GetRequest& request,
                                                 const KeepAlive& keep) {
  const Wanted wanted = maker_.calls().decided(undecided, request);
  if (const LoadedKernel* found = maker_.ready_behind(wanted, request.which)) return *found;
  maker_.admit(wanted, request);
  return maker_.make(wanted, request, keep);
}

void BehindMaker::make(const Wanted& wanted, const KeepAlive& keep) {
  KernelTables::State& state = tables_.state.get();
  GetRequest request;
  request.urgency = compile::Urgency::ahead, request.own_thread = true;
  const std::string name = wanted.name() + (wanted.undecided.empty() ? "" : " ?");
  {
    const std::lock_guard lock(state.mutex);
    if (!state.behind.insert(name).second) return;
    request.epoch = state.epoch;
  }
  const auto ended = [this, keep, name, request] {
    KernelTables::State& own = tables_.state.get();
    const std::lock_guard lock(own.mutex);
    if (own.epoch == request.epoch) own.behind.erase(name);
  };
  const auto work = [this, keep, wanted, request, ended](const char* why_not) {
    try {
      if (why_not) fail_undone(wanted.name(), why_not);
      make_here(wanted, request, keep);
    } catch (const std::exception& error) {
      base::info("a kernel could not be made ahead of need: " + std::string(error.what()));
    }
    ended();
  };
  try {
    maker_.core().background().run(Background::Work::ahead, work);
  } catch (...) {
    ended();
    throw;
  }
}

void BehindMaker::make_here(const Wanted& undecided, const GetRequest& request, const KeepAlive& keep) {
  const bool was_decided = undecided.undecided.empty();
  const Wanted wanted = maker_.calls().decided(undecided, request);
  if (!was_decided) {
    tell_pending(undecided, wanted, request);
    maker_.admit(wanted, request);
  }
  if (target_.driver) {
    const CurrentContext current(target_, "loading " + wanted.name());
    maker_.make(wanted, request, keep);
  } else {
    maker_.check_unsealed(wanted, request);
    maker_.obtain(wanted, request);
  }
}

/// Tells the decided choice to the calls that run their fallback meanwhile.
void BehindMaker::tell_pending(const Wanted& undecided, const Wanted& decided, const GetRequest& request) {
  KernelTables::State& state = tables_.state.get();
  const std::lock_guard lock(state.mutex);
  if (state.epoch != request.epoch) return;
  for (PendingFallback& p : state.pending) {
    if (!p.wanted.is_of(undecided)) continue;
    p.wanted = decided;
    p.wanted.undecided.clear();
    p.wanted.files.reset();
  }
}

}  // namespace kiln::runtime
