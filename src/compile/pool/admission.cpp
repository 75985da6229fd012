#include "compile/pool/admission.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace kiln::compile {
namespace {

using namespace std::chrono_literals;

// Pauses between two looks at the host's slots.
constexpr base::Clock::duration kFirstPoll = 200us, kLastPoll = 5ms;
constexpr auto kMemoryPoll = 20ms;
constexpr auto kShownAfter = 20ms;
constexpr auto kMemoryRead = 50ms;  // reading a cgroup's statistics can take the kernel a millisecond
/// With less free memory than this the kernel soon chooses a process to kill.
constexpr std::uint64_t kDanger = std::uint64_t{256} << 20;

/// Time to wait for a slot before going on without one: a stopped process keeps its slot.
base::Clock::duration patience(Urgency urgency) { return urgency == Urgency::caller ? 10s : 60s; }

}  // namespace

/// A place in the queue until destruction, also when an exception is thrown.
class Admission::Waiting {
 public:
  Waiting(Admission& owner, const Demand& demand) : owner_(owner), lock(owner.mutex_) {
    at_ = owner.waiting_.insert(owner.waiting_.end(), Waiter{demand});
  }
  ~Waiting() {
    owner_.waiting_.erase(at_);
    lock.unlock();
    owner_.changed_.notify_all();  // another compile is now the first
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  bool is_first() const { return owner_.first() == &*at_; }

 private:
  Admission& owner_;
  std::list<Waiter>::iterator at_;

 public:
  std::unique_lock<std::mutex> lock;  ///< held except while waiting
};

Admission::Pass::~Pass() {
  slot_.reset();  // first, because a compile that is woken looks for a slot
  {
    const std::lock_guard lock(owner_.mutex_);
    for (auto at = owner_.running_.begin(); at != owner_.running_.end(); ++at) {
      if (*at != this) continue;
      node_.splice(node_.begin(), owner_.running_, at);
      break;
    }
  }
  owner_.changed_.notify_all();
}

std::unique_ptr<Admission::Pass> Admission::enter(const Limits& limits, const Demand& demand) {
  Waiting me(*this, demand);
  std::unique_ptr<HostSlots::Request> request;
  Urgency requested_as = demand.now();
  base::Clock::duration poll = kFirstPoll;
  std::optional<base::Clock::time_point> wants_slot_since, waits_since;
  std::shared_ptr<void> shown;
  while (!closed_ && !demand.give_up.passed()) {
    base::Clock::duration pause = 1h;  // until a notification
    if (me.is_first() && worker_free(limits, demand.now())) {
      pause = kMemoryPoll;
      if (running_.empty() || fits(limits, demand)) {
        std::shared_ptr<void> slot;
        if (limits.slots) {
          if (!request || requested_as != demand.now()) {
            requested_as = demand.now();
            request = limits.slots->request(requested_as);
          }
          slot = request->try_take();
          if (!wants_slot_since) wants_slot_since = base::Clock::now();
          if (!slot && base::Clock::now() - *wants_slot_since >= patience(requested_as)) {
            slot = std::make_shared<char>();
            base::warn_once(
                "slots held",
                "no compile slot of this host became free for a long time, so this process compiles "
                "without one; look for a stopped process that uses the same cache");
          }
        }
        if (slot || !limits.slots) {
          std::unique_ptr<Pass> pass(new Pass(*this, demand, expected_locked(demand), std::move(slot)));
          running_.splice(running_.end(), pass->node_);
          return pass;
        }
        pause = poll;
        poll = std::min(poll * 2, kLastPoll);
      }
    }
    if (limits.slots && !shown) {
      if (!waits_since) waits_since = base::Clock::now();
      const auto waited = base::Clock::now() - *waits_since;
      if (waited >= kShownAfter) {
        shown = limits.slots->show_waiting(demand);
        if (!shown) shown = std::make_shared<char>();  // cannot be shown: do not try again
      } else {
        pause = std::min<base::Clock::duration>(pause, kShownAfter - waited);
      }
    }
    changed_.wait_for(me.lock, std::min(pause, demand.give_up.left()));
  }
  return nullptr;
}

const Admission::Waiter* Admission::first() const {
  const Waiter* best = nullptr;
  for (const Waiter& w : waiting_) {
    if (!best || w.demand.now() < best->demand.now()) best = &w;  // the list is in order of arrival
  }
  return best;
}

bool Admission::worker_free(const Limits& limits, Urgency urgency) const {
  const auto running = static_cast<int>(running_.size());
  if (urgency == Urgency::ahead) return running < limits.jobs;
  const auto callers = std::count_if(running_.begin(), running_.end(),
                                     [](const Pass* p) { return p->urgency_ == Urgency::caller; });
  return callers < limits.jobs && running < most_at_once(limits.jobs);
}

/// Running compiles may still grow to the memory that was reserved for them.
bool Admission::fits(const Limits& limits, const Demand& demand) {
  const std::uint64_t wanted = expected_locked(demand);
  std::uint64_t reserved = 0, growth = 0;
  for (const Pass* p : running_) {
    const std::uint64_t resident = p->resident_, whole = std::max(p->reserved_, resident);
    reserved += whole;
    growth += whole - resident;
  }
  if (limits.memory) return reserved + wanted <= limits.memory;
  if (const auto now = base::Clock::now(); now - available_at_ >= kMemoryRead) {
    available_ = machine(limits).available_memory();
    available_at_ = now;
  }
  return growth + wanted <= available_ - std::min(available_, std::max(kDanger, available_ / 10));
}

bool Admission::in_danger(const Limits& limits, std::uint64_t resident) {
  if (limits.memory && resident > limits.memory) return true;
  const Machine& m = machine(limits);
  return m.available_memory() < std::min(kDanger, m.total_memory() / 32);
}

const Machine& Admission::machine(const Limits& limits) {
  std::call_once(machine_once_, [&] { machine_.emplace(limits.machine_root); });
  return *machine_;
}

void Admission::learn(const std::string& subject, std::uint64_t peak) {
  const std::lock_guard lock(mutex_);
  std::uint64_t& known = learnt_[subject];
  known = std::max(known, peak);
}

std::uint64_t Admission::expected_locked(const Demand& demand) const {
  const auto known = learnt_.find(demand.subject);
  return std::max(demand.at_least, known == learnt_.end() ? demand.memory : known->second);
}

std::uint64_t Admission::expected(const Demand& demand) {
  const std::lock_guard lock(mutex_);
  return expected_locked(demand);
}

void Admission::reconsider() noexcept {
  {
    const std::lock_guard lock(mutex_);  // no thread is between its check and its wait
  }
  changed_.notify_all();
}

void Admission::close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

int Admission::running() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(running_.size());
}

int Admission::waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(waiting_.size());
}

}  // namespace kiln::compile
