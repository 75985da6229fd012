// The summaries of `kiln prewarm`.
#pragma once

#include <string>
#include <vector>

#include "prewarm_room.hpp"
#include "prewarm_run.hpp"
#include "remote_transfer.hpp"

namespace kiln::cli {

void report_prewarm(const Context& context, const PrewarmPlan& plan, const PrewarmResult& result,
                    const PlanRoom& room, const std::string& directory, const std::optional<Pushed>& pushed);
/// Returns the exit code: kPartly when something is not covered.
int report_coverage(const Context& context, const PrewarmPlan& plan, const std::vector<bool>& covered);

}  // namespace kiln::cli
