// The fleet's tier as configured.
#pragma once

#include <memory>

#include "remote/tier.hpp"
#include "runtime/config.hpp"

namespace kiln::runtime {

/// Null when none is configured; also when it cannot be used as it is (no public key to trust, a key file
/// that cannot be read): one warning says what to do. Touches no network. Throws for lack of memory only.
std::shared_ptr<remote::Tier> open_tier(const Config& config, std::shared_ptr<remote::Counts> counts);

}  // namespace kiln::runtime
