// The fleet's tier as configured.
#pragma once

#include <memory>

#include "cache/fleet/tier.hpp"
#include "cache/record/record.hpp"
#include "compile/key/facts.hpp"
#include "runtime/config/config.hpp"

namespace kiln::runtime {

/// Null when none is configured; also when it cannot be used as it is (no public key to trust, a key file
/// that cannot be read): one warning says what to do. Touches no network. Throws for lack of memory only.
std::shared_ptr<fleet::Tier> open_tier(const Config& config, std::shared_ptr<fleet::Counts> counts);

/// What an entry and its row say beside the record.
struct TierLabels {
  std::string arch, toolchain;
  fleet::Tier::About about;
};
TierLabels labels_of(const compile::Facts& facts);
fleet::PublishedRecord envelope_of(cache::Record&& record, const TierLabels& labels);

}  // namespace kiln::runtime
