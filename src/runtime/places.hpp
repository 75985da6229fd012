// Where the writable store goes when a machine has no HOME, a read-only root or somebody else's directory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/store.hpp"
#include "runtime/config.hpp"

namespace kiln::runtime {

/// The configured directory, else $XDG_CACHE_HOME/kiln, ~/.cache/kiln (DESIGN 8), then the steps down:
/// $TMPDIR/kiln-<uid>, /var/tmp/kiln-<uid>.
std::vector<std::string> store_candidates(const Config& config);

/// The first candidate that opens. Each step down is one warning that says what to do; null: no store, work
/// in memory.
std::shared_ptr<cache::Store> open_store(const Config& config);

}  // namespace kiln::runtime
