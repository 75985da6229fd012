// What is made behind callers' backs: get_async, prefetch, the rows of a preparation.
#include "base/log.hpp"
#include "kiln/error.hpp"
#include "runtime/kernels/kernel_template_state.hpp"
#include "runtime/service/service.hpp"

namespace kiln::runtime {
namespace {

[[noreturn]] void fail_undone(const std::string& what, const char* why_not) {
  throw Error(Errc::not_ready, what + " was not made: " + why_not);
}

}  // namespace

KernelFuture KernelTemplate::get_async(std::span<const Value> values, const GetRequest& request) {
  check_usable();
  Wanted wanted = want(values, request, Disk::left_alone);
  const auto promise = std::make_shared<std::promise<const LoadedKernel*>>();
  KernelFuture result = promise->get_future().share();
  const bool later = !wanted.undecided.empty() && !service_.is_sealed();  // the stores are asked behind him
  if (!later) {
    if (const LoadedKernel* found = ready(wanted, request.which)) {
      promise->set_value(found);
      return result;
    }
    admit(wanted, request);
  }
  GetRequest own = request;
  own.stream.reset(), own.own_thread = true, own.epoch = epoch();
  service_.background().run(Background::Work::caller, [self = shared_from_this(), wanted = std::move(wanted),
                                                       own, promise, later](const char* why_not) {
    try {
      if (why_not) fail_undone(wanted.name(), why_not);
      const CurrentContext current(self->target_, "loading " + wanted.name());
      promise->set_value(later ? &self->decide_and_make(wanted, own) : &self->make(wanted, own));
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  });
  return result;
}

/// What `get` does after it has checked, on a thread of kiln's own.
const LoadedKernel& KernelTemplate::decide_and_make(const Wanted& undecided, const GetRequest& request) {
  const Wanted wanted = decided(undecided, request);
  if (const LoadedKernel* found = ready_behind(wanted, request.which)) return *found;
  admit(wanted, request);
  return make(wanted, request);
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
  const Wanted wanted = want(values, {}, Disk::left_alone);
  if (wanted.undecided.empty() || service_.is_sealed()) {
    if (ready(wanted, source::Which::kernel)) return;
    admit(wanted, {});
  }
  make_behind(wanted);
}

/// One at a time for each specialisation. Its failure is remembered by the pipeline, and told as an event.
void KernelTemplate::make_behind(const Wanted& wanted) {
  State& state = state_.get();
  GetRequest request;
  request.urgency = compile::Urgency::ahead, request.own_thread = true;
  const std::string name = wanted.name() + (wanted.undecided.empty() ? "" : " ?");
  {
    const std::lock_guard lock(state.mutex);
    if (!state.behind.insert(name).second) return;
    request.epoch = state.epoch;
  }
  const auto ended = [self = shared_from_this(), name, request] {
    State& own = self->state_.get();
    const std::lock_guard lock(own.mutex);
    if (own.epoch == request.epoch) own.behind.erase(name);
  };
  const auto work = [self = shared_from_this(), wanted, request, ended](const char* why_not) {
    try {
      if (why_not) fail_undone(wanted.name(), why_not);
      self->make_here(wanted, request);
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

/// Whoever runs its fallback meanwhile is told what it has become.
void KernelTemplate::make_here(const Wanted& undecided, const GetRequest& request) {
  const bool was_decided = undecided.undecided.empty();
  const Wanted wanted = decided(undecided, request);
  if (!was_decided) {
    State& state = state_.get();
    const std::lock_guard lock(state.mutex);
    if (state.epoch == request.epoch)
      for (State::Pending& p : state.pending)
        if (p.wanted.is_of(undecided))
          p.wanted = wanted, p.wanted.undecided.clear(), p.wanted.prepared.reset();
  }
  if (!was_decided) admit(wanted, request);
  if (target_.driver) {
    const CurrentContext current(target_, "loading " + wanted.name());
    make(wanted, request);
  } else {
    check_unsealed(wanted, request);
    service_.obtain(source::instantiate(origin_, wanted.resolved), options_of(request));
  }
}

}  // namespace kiln::runtime
