// The fleet's tier as configured.
#pragma once

#include <memory>

#include "cache/fleet/tier.hpp"
#include "cache/record/record.hpp"
#include "compile/key/facts.hpp"
#include "runtime/config/config.hpp"

namespace kiln::runtime {

/// Opens the tier. Null when none is configured. Null, too, with one warning that says what to do, when the
/// configuration cannot be used (no public key to trust, a key file that cannot be read). Touches no network.
/// Throws only for lack of memory.
std::shared_ptr<fleet::Tier> open_tier(const Config& config, std::shared_ptr<fleet::Counts> counts);

/// The labels that an entry and its row have beside the record.
struct TierLabels {
  std::string arch, toolchain;
  fleet::Tier::About about;
};
TierLabels labels_of(const compile::Facts& facts);
fleet::PublishedRecord envelope_of(cache::Record&& record, const TierLabels& labels);

}  // namespace kiln::runtime
