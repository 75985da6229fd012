// The metrics of kiln stats --prometheus.
#pragma once

#include "tools/kiln/stats/report.hpp"

namespace kiln::cli {

/// For `kiln stats --prometheus`; `labels` stand on every sample.
std::string exposition_of(const StatsReport& report,
                          const std::vector<std::pair<std::string, std::string>>& labels);

}  // namespace kiln::cli
