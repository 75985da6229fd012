// The page's section about the blobs of other JIT compilers.
#pragma once

#include <string>

#include "tools/kiln/report/data.hpp"

namespace kiln::cli {

std::string spaces_html(const ReportData& data);

}  // namespace kiln::cli
