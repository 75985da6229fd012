// The page's text about the last prewarm.
#pragma once

#include "tools/kiln/report/data.hpp"

namespace kiln::cli {

/// A sentence that identifies the run.
std::string prewarm_lead_html(const ReportData& data);
std::string lanes_table_html(const ReportData& data);

}  // namespace kiln::cli
