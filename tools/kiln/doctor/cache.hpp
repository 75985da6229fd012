// The cache: where it is, what lies under it, and whether its locks and transactions work there.
#pragma once

#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {

/// Directory, filesystem, damage, a put and a get, the store's lock, clock, layers. The user's entries are
/// not touched.
void probe_cache(Context& context, Findings& out);
/// The store or a layer has an entry, which is served without a compiler, too.
bool anything_cached(const runtime::Config& config) noexcept;
void probe_temporary(Findings& out);

}  // namespace kiln::cli
