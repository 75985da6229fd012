#include "compile/compiler/precompiled_header.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"

namespace kiln::compile {
namespace {

/// Names that were noted without a header; at this number all notes are forgotten.
constexpr std::size_t kMaxNames = 4096;
constexpr unsigned kMaxAttempts = 3;
constexpr std::chrono::seconds kIdle = std::chrono::minutes(10);

}  // namespace

PrecompiledHeader::~PrecompiledHeader() { base::forget_at_fork(file.get()); }

std::string PrecompiledHeader::path() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file.get());
}

bool PrecompiledHeader::intact() const noexcept {
  return base::FileStamp::of("/proc/self/fd/" + std::to_string(file.get())) == stamp;
}

PrecompiledHeaders::Turn PrecompiledHeaders::take(const Digest& name, unsigned compiles) {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  if (!settings_.enabled || state.off) return {};
  drop_idle_locked(state, kIdle);
  if (state.tracked.size() >= kMaxNames)
    std::erase_if(state.tracked, [](const auto& each) {
      return !each.second.header && each.second.phase != Phase::creating;
    });
  Tracked& tracked = state.tracked[name];
  tracked.last_use = std::chrono::steady_clock::now();
  tracked.compiles += compiles;
  switch (tracked.phase) {
    case Phase::seen:
      if (tracked.compiles < settings_.created_by) return {};
      tracked.phase = Phase::creating;
      return {Step::create, nullptr, 0};
    case Phase::unproven:
      tracked.phase = Phase::proving;
      return {Step::prove, tracked.header, 0};
    case Phase::proven:
      ++tracked.uses;
      return {Step::use, tracked.header, tracked.only_in};
    case Phase::creating:
    case Phase::proving:
    case Phase::off:
      break;
  }
  return {};
}

void PrecompiledHeaders::drop(State& state, Tracked& tracked) {
  if (!tracked.header) return;
  --state.counts.held;
  state.counts.held_bytes -= tracked.header->stamp.size;
  tracked.header.reset();
}

void PrecompiledHeaders::drop_idle_locked(State& state, std::chrono::seconds idle) {
  const auto until = std::chrono::steady_clock::now() - idle;
  for (auto& [name, tracked] : state.tracked) {
    if (!tracked.header || tracked.phase == Phase::proving || tracked.last_use > until) continue;
    drop(state, tracked);
    ++state.counts.evicted;
    tracked = {};
  }
}

void PrecompiledHeaders::make_room(State& state, const Digest& keep) {
  while (state.counts.held > settings_.max_count || state.counts.held_bytes > settings_.max_bytes) {
    auto oldest = state.tracked.end();
    for (auto each = state.tracked.begin(); each != state.tracked.end(); ++each) {
      if (!each->second.header || each->first == keep) continue;
      if (oldest == state.tracked.end() || each->second.last_use < oldest->second.last_use) oldest = each;
    }
    // It alone is larger than the limit.
    if (oldest == state.tracked.end()) oldest = state.tracked.find(keep);
    Tracked& tracked = oldest->second;
    drop(state, tracked);
    ++state.counts.evicted;
    // A header that is dropped before it has paid off would be created and dropped again and again.
    const bool paid = tracked.uses >= 4;
    tracked = {};
    if (!paid) tracked.phase = Phase::off;
    if (oldest->first == keep) return;
  }
}

void PrecompiledHeaders::created(const Digest& name, std::shared_ptr<const PrecompiledHeader> header) {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  if (state.off) return;
  Tracked& tracked = state.tracked[name];
  ++state.counts.created;
  ++state.counts.held;
  state.counts.held_bytes += header->stamp.size;
  tracked.phase = Phase::unproven;
  tracked.header = std::move(header);
  tracked.last_use = std::chrono::steady_clock::now();
  make_room(state, name);
}

void PrecompiledHeaders::proven(const Digest& name, const Turn& turn, pid_t pid) {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  Tracked& tracked = state.tracked[name];
  if (tracked.header != turn.header) return;  // evicted meanwhile
  ++state.counts.proven;
  tracked.phase = Phase::proven;
  tracked.only_in = pid == turn.header->creator ? pid : 0;
}

void PrecompiledHeaders::undecided(const Digest& name) {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  Tracked& tracked = state.tracked[name];
  if (++tracked.attempts >= kMaxAttempts) {
    drop(state, tracked);
    tracked.phase = Phase::off;
    ++state.counts.off;
  } else {
    tracked.phase = tracked.header ? Phase::unproven : Phase::seen;
  }
}

void PrecompiledHeaders::unproven(const Digest& name) {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  Tracked& tracked = state.tracked[name];
  if (tracked.phase == Phase::proven && tracked.only_in != 0) tracked.phase = Phase::unproven;
}

void PrecompiledHeaders::off(const Digest& name, const std::string& why) {
  State& state = state_.get();
  {
    const std::lock_guard lock(state.mutex);
    Tracked& tracked = state.tracked[name];
    drop(state, tracked);
    if (tracked.phase != Phase::off) ++state.counts.off;
    tracked.phase = Phase::off;
  }
  base::info("no precompiled header for this source in this process: " + why);
}

void PrecompiledHeaders::off_for_all(const std::string& why) {
  State& state = state_.get();
  {
    const std::lock_guard lock(state.mutex);
    state.off = true;
    for (auto& [name, tracked] : state.tracked) drop(state, tracked);
    state.tracked.clear();
    ++state.counts.off;
  }
  base::warn_once("precompiled headers", why + "; this process goes on without precompiled headers");
}

void PrecompiledHeaders::count_use() {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  ++state.counts.used;
}

PrecompiledHeaders::Counts PrecompiledHeaders::counts() const {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  return state.counts;
}

void PrecompiledHeaders::drop_idle(std::chrono::seconds idle) {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  drop_idle_locked(state, idle);
}

}  // namespace kiln::compile
