// A service's counters, one atomic each.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/fleet/counts.hpp"
#include "kiln/kiln.h"

namespace kiln::runtime {

struct Counters : fleet::Counts {
  Count memory_hits{}, disk_hits{}, foreign_toolchain{}, other_arch{}, compiles{}, compile_failures{},
      remembered_failures{}, waits{};
  Count miss_absent{}, miss_damaged{}, miss_other_key_text{}, miss_gate_timeout{}, miss_unreadable{},
      miss_no_store{};
  Count puts{}, puts_present{}, unpublishable{}, sealed_misses{}, loads{}, device_bytes{};
  /// Skipped puts by reason.
  Count skipped_read_only{}, skipped_gate_timeout{}, skipped_full{}, skipped_failed{}, skipped_queue_full{};
  Count convoy_left{}, flight_timeouts{}, evictions{}, layer_hits{}, fallbacks{}, adopted{};
  Count compile_us{};
  Count saved_us{};  ///< time of compiles that a stored record or another flight made unnecessary
};

/// Counts the compile time of a kernel that was served without compiling.
inline void count_saved(Counters& counters, double compile_ms) noexcept {
  constexpr double kLongest = 1e12;  // a record may say anything
  if (compile_ms > 0 && compile_ms < kLongest)
    counters.saved_us += static_cast<std::uint64_t>(compile_ms * 1000);
}

inline std::uint64_t puts_skipped(const Counters& counters) noexcept {
  return counters.skipped_read_only + counters.skipped_gate_timeout + counters.skipped_full +
         counters.skipped_failed + counters.skipped_queue_full;
}

inline void read(const Counters& counters, kiln_stats& out) noexcept {
  out.memory_hits = counters.memory_hits, out.disk_hits = counters.disk_hits,
  out.foreign_toolchain = counters.foreign_toolchain, out.other_arch = counters.other_arch;
  out.compiles = counters.compiles, out.compile_failures = counters.compile_failures,
  out.remembered_failures = counters.remembered_failures;
  out.waits = counters.waits, out.miss_absent = counters.miss_absent,
  out.miss_damaged = counters.miss_damaged;
  out.miss_other_key_text = counters.miss_other_key_text, out.miss_gate_timeout = counters.miss_gate_timeout;
  out.miss_unreadable = counters.miss_unreadable, out.miss_no_store = counters.miss_no_store;
  out.puts = counters.puts, out.puts_present = counters.puts_present;
  out.skipped_read_only = counters.skipped_read_only,
  out.skipped_gate_timeout = counters.skipped_gate_timeout;
  out.skipped_full = counters.skipped_full, out.skipped_failed = counters.skipped_failed;
  out.skipped_queue_full = counters.skipped_queue_full;
  out.puts_skipped = puts_skipped(counters);
  out.convoy_left = counters.convoy_left, out.flight_timeouts = counters.flight_timeouts;
  out.unpublishable = counters.unpublishable, out.sealed_misses = counters.sealed_misses,
  out.loads = counters.loads, out.device_bytes = counters.device_bytes;
  out.layer_hits = counters.layer_hits, out.evictions = counters.evictions;
  out.fallbacks = counters.fallbacks, out.adopted = counters.adopted;
  out.remote_hits = counters.remote_hits;
  out.remote_miss_absent = counters.remote_miss_absent,
  out.remote_miss_timeout = counters.remote_miss_timeout;
  out.remote_miss_unreachable = counters.remote_miss_unreachable,
  out.remote_miss_refused = counters.remote_miss_refused;
  out.remote_miss_protocol = counters.remote_miss_protocol,
  out.remote_miss_breaker = counters.remote_miss_breaker;
  out.remote_rejected_schema = counters.remote_rejected_schema,
  out.remote_rejected_key = counters.remote_rejected_key;
  out.remote_rejected_signature = counters.remote_rejected_signature;
  out.remote_rejected_damaged = counters.remote_rejected_damaged;
  out.remote_puts = counters.remote_puts, out.remote_puts_dropped = counters.remote_puts_dropped;
  out.remote_puts_failed = counters.remote_puts_failed;
  out.remote_leases = counters.remote_leases, out.remote_waits = counters.remote_waits;
  out.remote_takeovers = counters.remote_takeovers, out.remote_wait_timeouts = counters.remote_wait_timeouts;
  out.remote_leases_lost = counters.remote_leases_lost, out.remote_reported = counters.remote_reported;
  out.compile_ms = static_cast<double>(counters.compile_us.load()) / 1000;
  out.compile_saved_ms = static_cast<double>(counters.saved_us.load()) / 1000;
}

}  // namespace kiln::runtime
