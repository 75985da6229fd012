#include "compile/pool/pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <list>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "base/no_signals.hpp"
#include "base/text.hpp"
#include "compile/backend/backend.hpp"

namespace kiln::compile {
namespace {

using namespace std::chrono_literals;

constexpr base::Clock::duration kWatchBusy = 100ms, kWatchIdle = 1s;
/// Address space in addition to memory that may be resident: the compile thread's stack, and memory that
/// NVRTC maps but does not touch.
constexpr std::uint64_t kUntouched = std::uint64_t{4} << 30;

WorkerProcess::Answer refused(WorkerProcess::Answer::Fate fate, const char* why) {
  WorkerProcess::Answer out;
  out.fate = fate;
  out.how = why;
  return out;
}

}  // namespace

struct WorkerPool::State {
  struct Idle {
    std::unique_ptr<WorkerProcess> worker;
    base::Clock::time_point since;
  };
  struct Busy {
    WorkerProcess* worker;
    Admission::Pass* pass;
  };
  Admission admission;
  std::once_flag cores_once;
  int cores = 0;

  std::mutex mutex;        // guards the members below
  std::vector<Idle> idle;  // the most recently used is last
  std::list<Busy> busy;    // the youngest is last
  bool stopping = false, warming = false;
  View counts;
  bool watching = false;
  std::condition_variable wake_watcher;
  std::thread watcher;
  /// Kills by the kernel because memory ran out, at the watcher's last look and at the look before. A worker
  /// that dies between two looks is compared with the older number.
  std::atomic<std::uint64_t> kills_before{0};
  std::uint64_t kills_now = 0;
};

/// A worker that compiles, registered so that the watcher sees it.
class WorkerPool::Working {
 public:
  Working(State& state, WorkerProcess& worker, Admission::Pass& pass) : state_(state) {
    const std::lock_guard lock(state.mutex);
    at_ = state.busy.insert(state.busy.end(), {&worker, &pass});
    if (state.stopping) worker.kill(WorkerProcess::Reason::cancelled);
  }
  ~Working() {
    const std::lock_guard lock(state_.mutex);
    state_.busy.erase(at_);
  }
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;

 private:
  State& state_;
  std::list<State::Busy>::iterator at_;
};

WorkerPool::WorkerPool(PoolSettings settings) : settings_(std::move(settings)) {}

WorkerPool::~WorkerPool() {
  stop();
  State& state = state_.get();
  {
    const std::lock_guard lock(state.mutex);
    state.idle.clear();
  }
  state.wake_watcher.notify_all();
  if (state.watcher.joinable()) state.watcher.join();
}

void WorkerPool::stop() noexcept {
  State& state = state_.get();
  state.admission.close();
  const std::lock_guard lock(state.mutex);
  state.stopping = true;
  for (const State::Busy& busy : state.busy) busy.worker->kill(WorkerProcess::Reason::cancelled);
}

void WorkerPool::reconsider() noexcept { state_.get().admission.reconsider(); }

int WorkerPool::cores() {
  State& state = state_.get();
  std::call_once(state.cores_once, [&] {
    state.cores = state.admission.machine({.machine_root = settings_.machine_root}).cores();
  });
  return state.cores;
}

Admission::Limits WorkerPool::limits() {
  return {jobs(), settings_.memory, settings_.slots, settings_.machine_root};
}

WorkerPool::View WorkerPool::view() {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  View out = state.counts;
  out.running = state.admission.running(), out.waiting = state.admission.waiting();
  out.idle = static_cast<int>(state.idle.size());
  return out;
}

WorkerSettings WorkerPool::settings_for(const toolchain::CompilerLibraries& compiler) {
  const Machine& machine = state_.get().admission.machine({.machine_root = settings_.machine_root});
  WorkerSettings out;
  out.executable = find_worker_executable(settings_.executable);
  const std::uint64_t most = settings_.memory ? settings_.memory : machine.total_memory();
  out.address_space = most < std::numeric_limits<std::uint64_t>::max() - kUntouched ? most + kUntouched : 0;
  out.cpu_seconds = settings_.cpu_seconds;
  out.compiler = compiler;
  return out;
}

/// Null when there is no worker executable.
std::unique_ptr<WorkerProcess> WorkerPool::take(const WorkerRequest& request) {
  State& state = state_.get();
  {
    const std::lock_guard lock(state.mutex);
    while (!state.idle.empty()) {
      auto worker = std::move(state.idle.back().worker);
      state.idle.pop_back();
      // Otherwise it was killed while idle, which says nothing about this request.
      if (worker->alive()) return worker;
    }
  }
  const WorkerSettings settings = settings_for(request.compiler);
  if (settings.executable.empty()) return nullptr;
  {
    const std::lock_guard lock(state.mutex);
    ++state.counts.spawned;
  }
  return WorkerProcess::spawn(settings);
}

void WorkerPool::give(std::unique_ptr<WorkerProcess> worker) noexcept {
  State& state = state_.get();
  const int most = Admission::most_at_once(jobs());
  const std::lock_guard lock(state.mutex);
  // There may be more workers than can be used at once: one was started just before another became idle.
  if (state.stopping || worker->was_killed() ||
      static_cast<int>(state.idle.size() + state.busy.size()) >= most)
    return;
  try {
    state.idle.push_back({std::move(worker), base::Clock::now()});
  } catch (...) {  // no memory for the list: the worker is dropped
  }
}

void WorkerPool::warm(const toolchain::CompilerLibraries& compiler) noexcept {
  State& state = state_.get();
  {
    const std::lock_guard lock(state.mutex);
    if (!state.idle.empty() || !state.busy.empty() || state.warming || state.stopping) return;
    state.warming = true;
  }
  bool spawned = false;
  try {
    const WorkerSettings settings = settings_for(compiler);
    if (!settings.executable.empty()) {
      give(WorkerProcess::spawn(settings));
      spawned = true;
      ensure_watched(state);
    }
  } catch (...) {  // run() reports it
  }
  const std::lock_guard lock(state.mutex);
  state.counts.spawned += spawned;
  state.warming = false;
}

WorkerProcess::Answer WorkerPool::run(const WorkerRequest& request, const Demand& demand) {
  using Fate = Answer::Fate;
  State& state = state_.get();
  Demand again = demand;
  for (bool retried = false;; retried = true) {
    const auto pass = state.admission.enter(limits(), again);
    if (!pass) {
      return state.admission.closed() ? refused(Fate::cancelled, "the service was destroyed")
                                      : refused(Fate::timed_out, "its turn to compile did not come in time");
    }
    Answer answer = run_once(request, demand, *pass);
    if (answer.peak_memory) state.admission.learn(demand.subject, answer.peak_memory);
    if (answer.fate == Fate::died && answer.signal == SIGKILL && !answer.killed_by_us &&
        state.admission.machine(limits()).memory_kills() > state.kills_before) {
      answer.fate = Fate::out_of_memory;
      answer.how += " by the operating system, because memory ran out";
    }
    if (answer.fate != Fate::out_of_memory) return answer;
    // Other compiles took memory at the same time. The second try reserves twice as much as this compile had.
    if (retried || state.admission.running() <= 1) return answer;
    again.at_least = 2 * std::max(pass->resident(), state.admission.expected(demand));
  }
}

WorkerProcess::Answer WorkerPool::run_once(const WorkerRequest& request, const Demand& demand,
                                           Admission::Pass& pass) {
  State& state = state_.get();
  std::unique_ptr<WorkerProcess> worker = take(request);
  if (!worker) {
    base::warn_once(
        "no worker",
        "no kiln-worker executable found (looked for " + base::join(worker_candidates(), ", ") +
            "), so kiln compiles in this process, where a compiler crash ends it: set KILN_WORKER to the "
            "executable");
    Answer here;
    here.fate = Answer::Fate::answered;
    here.response = backend().run(request, WorkingDirectory::of_thread);
    return here;
  }
  Answer answer;
  {
    const Working working(state, *worker, pass);
    ensure_watched(state);
    pass.grew_to(worker->resident_memory());
    answer = worker->ask(request, base::Deadline::after(demand.compile_limit));
  }
  if (answer.fate == Answer::Fate::answered) give(std::move(worker));
  return answer;
}

/// Starts a watcher thread while there are workers. When that fails, workers stay until
/// the pool is destroyed.
void WorkerPool::ensure_watched(State& state) {
  const std::lock_guard lock(state.mutex);
  if (state.watching || state.stopping) return;
  if (state.watcher.joinable()) state.watcher.join();  // the former watcher has ended, or is about to end
  try {
    state.kills_before = state.kills_now = state.admission.machine(limits()).memory_kills();
    const base::NoSignals inherited_by_the_thread;
    state.watcher = std::thread([this, &state] { watch(state); });
    state.watching = true;
  } catch (const std::system_error&) {
  }
}

/// Ends idle workers, reaps dead ones, and keeps busy ones from taking all memory.
void WorkerPool::watch(State& state) noexcept {
  ::pthread_setname_np(::pthread_self(), "kiln-workers");
  std::unique_lock lock(state.mutex);
  while (!state.stopping && !(state.idle.empty() && state.busy.empty())) {
    state.wake_watcher.wait_for(lock, state.busy.empty() ? std::min(kWatchIdle, settings_.idle) : kWatchBusy);
    const auto now = base::Clock::now();
    std::vector<State::Idle> gone;  // their destructors wait for the kernel, so they run without the mutex
    const auto leaves = [&](const State::Idle& i) {
      return now - i.since >= settings_.idle || !i.worker->alive();
    };
    for (auto i = state.idle.begin(); i != state.idle.end();) {
      if (!leaves(*i)) {
        ++i;
        continue;
      }
      gone.push_back(std::move(*i));
      i = state.idle.erase(i);
    }
    if (!state.busy.empty() && free_memory(state)) {
      for (State::Idle& i : state.idle) gone.push_back(std::move(i));
      state.idle.clear();
    }
    lock.unlock();
    const bool room = !gone.empty();
    gone.clear();
    if (room) state.admission.reconsider();
    lock.lock();
  }
  state.watching = false;
  const bool empty = !state.stopping;
  lock.unlock();
  if (empty && settings_.on_empty) settings_.on_empty();
}

/// Measures the memory of the workers. When memory is nearly exhausted, returns true to make the idle
/// workers end. Without idle workers the youngest busy worker is killed, because it loses the least work.
/// REQUIRES: the mutex is held.
bool WorkerPool::free_memory(State& state) noexcept try {
  state.kills_before = std::exchange(state.kills_now, state.admission.machine(limits()).memory_kills());
  std::uint64_t resident = 0;
  for (const State::Busy& busy : state.busy) {
    const std::uint64_t now = busy.worker->resident_memory();
    busy.pass->grew_to(now);
    resident += now;
  }
  for (const State::Idle& idle : state.idle) resident += idle.worker->resident_memory();
  if (!state.admission.in_danger(limits(), resident)) return false;
  if (!state.idle.empty()) return true;
  ++state.counts.killed_for_memory;
  state.busy.back().worker->kill(WorkerProcess::Reason::memory);
  return false;
} catch (...) {
  return false;
}

}  // namespace kiln::compile
