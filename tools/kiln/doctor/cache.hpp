// Probes of the cache: its directory and filesystem, and whether its locks and transactions work there.
#pragma once

#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

/// Probes directory, filesystem, damage, a put and a get, the store's lock, the clock and the layers. The
/// user's entries are not changed.
void probe_cache(Context& context, Findings& out);
/// True when the store or a layer has an entry; entries are served even without a compiler.
bool anything_cached(const runtime::Config& config) noexcept;
void probe_temporary(Findings& out);

}  // namespace kiln::cli
