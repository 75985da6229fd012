// The page's words about the last prewarm.
#pragma once

#include "tools/kiln/report/data.hpp"

namespace kiln::cli {

/// Text: what run it was.
std::string prewarm_lead_html(const ReportData& data);
std::string lanes_table_html(const ReportData& data);

}  // namespace kiln::cli
