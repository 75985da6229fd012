// Shared by `kiln gc` and `kiln clear`: both replace the store's file under the gate while engines run.
#pragma once

#include <functional>

#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/store/entries.hpp"

namespace kiln::cli {

/// Adds --wait SECONDS, the time to wait for the gate.
void add_wait_flag(Command sub, double& seconds);

using Rewrite = std::function<cache::Rewritten(cache::Store&, base::Deadline)>;
/// Opens the store at `place` for writing and rewrites it. Throws Error(io). When the gate was held until the
/// deadline, the error names the holder. REQUIRES: place.there.
cache::Rewritten rewrite_store(const runtime::Config& config, const StorePlace& place, double wait_s,
                               const Rewrite& rewrite);

/// The output of both commands when there is no store. Returns exit status 0.
int report_nothing_there(const Context& context, const StorePlace& place);
/// The JSON fields that both commands share.
Json json_of(const Context& context, const StorePlace& place, const cache::Rewritten& done);

}  // namespace kiln::cli
