// The counters of the fleet's tier, one atomic each. A service's counters begin with them.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/fleet/fault.hpp"
#include "cache/fleet/rejection.hpp"

namespace kiln::fleet {

struct Counts {
  using Count = std::atomic<std::uint64_t>;
  Count remote_hits{};
  /// Misses by reason: no such entry, no answer in time, no connection (or no name), turned away (TLS,
  /// password, rights, memory), an answer that cannot be used, an open breaker.
  Count remote_miss_absent{}, remote_miss_timeout{}, remote_miss_unreachable{}, remote_miss_refused{},
      remote_miss_protocol{}, remote_miss_breaker{};
  /// Entries that were there and not believed: of another schema, under another key, not signed by
  /// a trusted key, damaged.
  Count remote_rejected_schema{}, remote_rejected_key{}, remote_rejected_signature{},
      remote_rejected_damaged{};
  /// Entries written; dropped, because the queue was full or they were too large; not taken by the server.
  Count remote_puts{}, remote_puts_dropped{}, remote_puts_failed{};
  /// Leases taken; kernels waited for; leases taken over after another's ended without an entry; waits that
  /// were given up; leases lost before their end.
  Count remote_leases{}, remote_waits{}, remote_takeovers{}, remote_wait_timeouts{}, remote_leases_lost{};
  Count remote_reported{};  ///< missed specialisations that the prewarm job was told of
};

/// Counts a miss by the fault of the server; `none` means that it has no such entry.
void count_miss(Counts& counts, Fault fault) noexcept;
/// Counts an entry that was there and not believed.
void count_rejected(Counts& counts, Rejection reason) noexcept;

}  // namespace kiln::fleet
