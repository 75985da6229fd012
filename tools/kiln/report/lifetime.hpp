// The page's section about requests to the store and their results.
#pragma once

#include "tools/kiln/report/data.hpp"

namespace kiln::cli {

std::string lifetime_html(const ReportData& data);

}  // namespace kiln::cli
