// A service's counters, one atomic each.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/fleet/counts.hpp"
#include "kiln/kiln.h"

namespace kiln::runtime {

struct Counters : fleet::Counts {
  Count memory_hits{}, disk_hits{}, foreign_toolchain{}, compiles{}, compile_failures{},
      remembered_failures{}, waits{};
  Count miss_absent{}, miss_damaged{}, miss_other_key_text{}, miss_gate_timeout{}, miss_unreadable{},
      miss_no_store{};
  Count puts{}, puts_present{}, unpublishable{}, sealed_misses{}, loads{}, device_bytes{};
  /// Skipped puts by reason.
  Count skipped_read_only{}, skipped_gate_timeout{}, skipped_full{}, skipped_failed{}, skipped_queue_full{};
  Count convoy_left{}, flight_timeouts{}, evictions{}, layer_hits{}, fallbacks{}, adopted{};
  Count compile_us{};
  Count saved_us{};  ///< of compiles that a store's record or somebody else's flight made unnecessary

  /// A kernel that took so long to compile was served without compiling.
  void saved(double compile_ms) noexcept {
    constexpr double kLongest = 1e12;  // a record may say anything
    if (compile_ms > 0 && compile_ms < kLongest) saved_us += static_cast<std::uint64_t>(compile_ms * 1000);
  }

  std::uint64_t puts_skipped() const noexcept {
    return skipped_read_only + skipped_gate_timeout + skipped_full + skipped_failed + skipped_queue_full;
  }

  void read(kiln_stats& out) const noexcept {
    out.memory_hits = memory_hits, out.disk_hits = disk_hits, out.foreign_toolchain = foreign_toolchain;
    out.compiles = compiles, out.compile_failures = compile_failures,
    out.remembered_failures = remembered_failures;
    out.waits = waits, out.miss_absent = miss_absent, out.miss_damaged = miss_damaged;
    out.miss_other_key_text = miss_other_key_text, out.miss_gate_timeout = miss_gate_timeout;
    out.miss_unreadable = miss_unreadable, out.miss_no_store = miss_no_store;
    out.puts = puts, out.puts_present = puts_present;
    out.skipped_read_only = skipped_read_only, out.skipped_gate_timeout = skipped_gate_timeout;
    out.skipped_full = skipped_full, out.skipped_failed = skipped_failed;
    out.skipped_queue_full = skipped_queue_full;
    out.puts_skipped = puts_skipped();
    out.convoy_left = convoy_left, out.flight_timeouts = flight_timeouts;
    out.unpublishable = unpublishable, out.sealed_misses = sealed_misses, out.loads = loads,
    out.device_bytes = device_bytes;
    out.layer_hits = layer_hits, out.evictions = evictions;
    out.fallbacks = fallbacks, out.adopted = adopted;
    out.remote_hits = remote_hits;
    out.remote_miss_absent = remote_miss_absent, out.remote_miss_timeout = remote_miss_timeout;
    out.remote_miss_unreachable = remote_miss_unreachable, out.remote_miss_refused = remote_miss_refused;
    out.remote_miss_protocol = remote_miss_protocol, out.remote_miss_breaker = remote_miss_breaker;
    out.remote_rejected_schema = remote_rejected_schema, out.remote_rejected_key = remote_rejected_key;
    out.remote_rejected_signature = remote_rejected_signature;
    out.remote_rejected_damaged = remote_rejected_damaged;
    out.remote_puts = remote_puts, out.remote_puts_dropped = remote_puts_dropped;
    out.remote_puts_failed = remote_puts_failed;
    out.remote_leases = remote_leases, out.remote_waits = remote_waits;
    out.remote_takeovers = remote_takeovers, out.remote_wait_timeouts = remote_wait_timeouts;
    out.remote_leases_lost = remote_leases_lost, out.remote_reported = remote_reported;
    out.compile_ms = static_cast<double>(compile_us.load()) / 1000;
    out.compile_saved_ms = static_cast<double>(saved_us.load()) / 1000;
  }
};

}  // namespace kiln::runtime
