// The common state of a tier's parts: its options, its backend, its counts, and how it warns.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/fleet/backend.hpp"
#include "cache/fleet/counts.hpp"
#include "cache/fleet/tier_url.hpp"
#include "cache/trust/signing_key.hpp"

namespace kiln::fleet {

struct TierOptions {
  TierUrl url;
  bool fleet = false;                                       ///< nodes write; false: they only read
  std::vector<trust::PublicKey> trusted;                    ///< beside the signer's own key
  std::shared_ptr<const trust::SigningKey> signer;          ///< null: nothing can be written
  base::Clock::duration budget = std::chrono::seconds(60);  ///< for another node's compile
  std::string who;                                          ///< "node7:4711", for people who look at a lease
  std::size_t queue_entries = 64, queue_bytes = std::size_t{64} << 20;  ///< limits of the queue of writes
  base::Clock::duration patience = std::chrono::seconds(2);             ///< how long the destructor waits
  Timeouts timeouts = {};
  BreakerPolicy breaker = {};
};

/// Immutable. Shared by the tier and its threads, which may outlive it.
struct TierContext {
  TierContext(TierOptions given, std::shared_ptr<Backend> behind, std::shared_ptr<Counts> counted);

  /// Warns once for each kind of fault that no waiting mends: "the fleet's tier at URL gives nothing to this
  /// node: DETAIL". `does` is the text between URL and DETAIL.
  void warn(Fault fault, const char* does, const std::string& detail) const;

  const TierOptions options;  ///< with the signer's key among the trusted ones
  const std::shared_ptr<Backend> backend;
  const std::shared_ptr<Counts> counts;
};

}  // namespace kiln::fleet
