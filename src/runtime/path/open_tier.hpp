// The fleet's tier as configured.
#pragma once

#include <memory>

#include "cache/record.hpp"
#include "compile/facts.hpp"
#include "remote/tier.hpp"
#include "runtime/config/config.hpp"

namespace kiln::runtime {

/// Null when none is configured; also when it cannot be used as it is (no public key to trust, a key file
/// that cannot be read): one warning says what to do. Touches no network. Throws for lack of memory only.
std::shared_ptr<remote::Tier> open_tier(const Config& config, std::shared_ptr<remote::Counts> counts);

/// What an entry and its row say beside the record.
struct TierLabels {
  std::string arch, toolchain;
  remote::Tier::About about;
};
TierLabels labels_of(const compile::Facts& facts);
remote::Entry entry_of(const Key& key, cache::Record&& record, const TierLabels& labels);

}  // namespace kiln::runtime
