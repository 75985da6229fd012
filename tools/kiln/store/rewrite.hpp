// What `kiln gc` and `kiln clear` have in common: the file is replaced under the gate, beside running
// engines.
#pragma once

#include <functional>

#include "tools/kiln/cli/context.hpp"
#include "tools/kiln/store/entries.hpp"

namespace kiln::cli {

/// --wait SECONDS for the gate.
void add_wait_flag(Command sub, double& seconds);

using Rewrite = std::function<cache::Rewritten(cache::Store&, base::Deadline)>;
/// Opens the store at `place` for writing and rewrites it. Throws Error(io); for a gate that was held all the
/// time it names who holds it. REQUIRES: place.there.
cache::Rewritten rewrite_store(const runtime::Config& config, const StorePlace& place, double wait_s,
                               const Rewrite& rewrite);

/// What both commands say where there is no store. Exit status 0: it is as small as it can be.
int report_nothing_there(const Context& context, const StorePlace& place);
/// The fields that both have.
Json json_of(const Context& context, const StorePlace& place, const cache::Rewritten& done);

}  // namespace kiln::cli
