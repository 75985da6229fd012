// The page's account of what a store's users asked for and got.
#pragma once

#include "tools/kiln/report/data.hpp"

namespace kiln::cli {

std::string lifetime_html(const ReportData& data);

}  // namespace kiln::cli
