#include "cache/fleet/counts.hpp"

namespace kiln::fleet {

void count_miss(Counts& counts, Fault fault) noexcept {
  switch (fault) {
    case Fault::none:
    case Fault::off:
      ++counts.remote_miss_absent;
      break;
    case Fault::timeout:
      ++counts.remote_miss_timeout;
      break;
    case Fault::unresolved:
    case Fault::connect:
    case Fault::closed:
      ++counts.remote_miss_unreachable;
      break;
    case Fault::tls:
    case Fault::auth:
    case Fault::refused:
      ++counts.remote_miss_refused;
      break;
    case Fault::breaker_open:
      ++counts.remote_miss_breaker;
      break;
    case Fault::protocol:
    case Fault::too_large:
    case Fault::no_memory:
      ++counts.remote_miss_protocol;
      break;
  }
}

void count_rejected(Counts& counts, Rejection reason) noexcept {
  switch (reason) {
    case Rejection::other_schema:
      ++counts.remote_rejected_schema;
      break;
    case Rejection::other_key:
    case Rejection::other_key_text:
      ++counts.remote_rejected_key;
      break;
    case Rejection::unsigned_:
    case Rejection::unknown_key:
    case Rejection::bad_signature:
      ++counts.remote_rejected_signature;
      break;
    default:
      ++counts.remote_rejected_damaged;
  }
}

}  // namespace kiln::fleet
