// The summaries of `kiln prewarm`.
#pragma once

#include <string>
#include <vector>

#include "tools/kiln/plan/run.hpp"
#include "tools/kiln/prewarm/room.hpp"
#include "tools/kiln/store/tier/transfer.hpp"

namespace kiln::cli {

void report_prewarm(const Context& context, const PrewarmPlan& plan, const PrewarmResult& result,
                    const PlanRoom& room, const std::string& directory, const std::optional<Pushed>& pushed);
/// Returns the exit code: kPartly when a task is not covered.
int report_coverage(const Context& context, const PrewarmPlan& plan, const std::vector<bool>& covered);

}  // namespace kiln::cli
