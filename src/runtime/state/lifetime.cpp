#include "runtime/state/lifetime.hpp"

namespace kiln::runtime {
namespace {

using C = Counters;

constexpr LifetimeCounter kCounters[] = {
    {"hits", "memory", &C::memory_hits},
    {"hits", "layer", &C::layer_hits},
    {"hits", "disk", &C::disk_hits},
    {"hits", "foreign_toolchain", &C::foreign_toolchain},
    {"misses", "absent", &C::miss_absent},
    {"misses", "damaged", &C::miss_damaged},
    {"misses", "other_key_text", &C::miss_other_key_text},
    {"misses", "gate_timeout", &C::miss_gate_timeout},
    {"misses", "unreadable", &C::miss_unreadable},
    {"misses", "no_store", &C::miss_no_store},
    {"", "compiles", &C::compiles},
    {"", "compile_failures", &C::compile_failures},
    {"", "remembered_failures", &C::remembered_failures},
    {"", "compile_us", &C::compile_us},
    {"", "waits", &C::waits},
    {"puts", "stored", &C::puts},
    {"puts", "present", &C::puts_present},
    {"puts", "read_only", &C::skipped_read_only},
    {"puts", "gate_timeout", &C::skipped_gate_timeout},
    {"puts", "full", &C::skipped_full},
    {"puts", "failed", &C::skipped_failed},
    {"puts", "queue_full", &C::skipped_queue_full},
    {"puts", "unpublishable", &C::unpublishable},
    {"", "sealed_misses", &C::sealed_misses},
    {"", "loads", &C::loads},
    {"", "evictions", &C::evictions},
    {"", "convoy_left", &C::convoy_left},
    {"", "flight_timeouts", &C::flight_timeouts},
    {"", "fallbacks", &C::fallbacks},
    {"", "adopted", &C::adopted},
    {"", "saved_us", &C::saved_us},
    {"hits", "remote", &C::remote_hits},
    {"remote_misses", "absent", &C::remote_miss_absent},
    {"remote_misses", "timeout", &C::remote_miss_timeout},
    {"remote_misses", "unreachable", &C::remote_miss_unreachable},
    {"remote_misses", "refused", &C::remote_miss_refused},
    {"remote_misses", "protocol", &C::remote_miss_protocol},
    {"remote_misses", "breaker_open", &C::remote_miss_breaker},
    {"remote_rejected", "other_schema", &C::remote_rejected_schema},
    {"remote_rejected", "other_key", &C::remote_rejected_key},
    {"remote_rejected", "signature", &C::remote_rejected_signature},
    {"remote_rejected", "damaged", &C::remote_rejected_damaged},
    {"remote_puts", "stored", &C::remote_puts},
    {"remote_puts", "dropped", &C::remote_puts_dropped},
    {"remote_puts", "failed", &C::remote_puts_failed},
    {"remote", "leases", &C::remote_leases},
    {"remote", "waits", &C::remote_waits},
    {"remote", "takeovers", &C::remote_takeovers},
    {"remote", "wait_timeouts", &C::remote_wait_timeouts},
    {"remote", "leases_lost", &C::remote_leases_lost},
    {"remote", "reported", &C::remote_reported},
    {"hits", "other_arch", &C::other_arch},
};
static_assert(std::size(kCounters) <= cache::kTallyValues);
static_assert(sizeof(Counters) == (std::size(kCounters) + 1) * sizeof(C::Count),
              "a counter was added to Counters: append it here");

}  // namespace

std::span<const LifetimeCounter> lifetime_counters() noexcept { return kCounters; }

void Lifetime::count_in(const std::string& directory) {
  if (!ours()) return;
  const std::lock_guard lock(mutex_);
  tally_ = std::make_unique<cache::Tally>(directory + "/v1");
}

void Lifetime::save() noexcept {
  if (!ours()) return;
  const std::lock_guard lock(mutex_);
  if (!tally_ && !where_) return;
  std::array<std::uint64_t, std::size(kCounters)> now, deltas;
  bool any = false;
  for (std::size_t i = 0; i < now.size(); ++i) {
    now[i] = counters_.*kCounters[i].count;
    deltas[i] = now[i] - saved_[i];
    any |= deltas[i] != 0;
  }
  if (any && !tally_) {
    try {
      if (const std::string place = where_(); !place.empty())
        tally_ = std::make_unique<cache::Tally>(place + "/v1");
    } catch (const std::exception&) {  // counts are only for people, so no error comes of them
    }
  }
  if (any && tally_ && tally_->add(deltas)) std::copy(now.begin(), now.end(), saved_.begin());
}

void Lifetime::save_sometimes() noexcept {
  const auto now = base::Clock::now();
  auto due = due_.load(std::memory_order_relaxed);
  if (now < due || !due_.compare_exchange_strong(due, now + kPeriod)) return;
  save();
}

}  // namespace kiln::runtime
