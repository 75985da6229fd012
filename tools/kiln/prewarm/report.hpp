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
/// `serving` has the arch of the image that serves each task, or nothing. Returns the exit code: kPartly when a task is
/// not covered.
int report_coverage(const Context& context, const PrewarmPlan& plan,
                    const std::vector<std::optional<base::Arch>>& serving);

}  // namespace kiln::cli
