// The metrics of kiln stats --prometheus.
#pragma once

#include "tools/kiln/stats/report.hpp"

namespace kiln::cli {

/// The text of `kiln stats --prometheus`. Every sample carries `labels`.
std::string exposition_of(const StatsReport& report,
                          const std::vector<std::pair<std::string, std::string>>& labels);

}  // namespace kiln::cli
