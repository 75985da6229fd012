// The data that the page's charts are drawn from.
#pragma once

#include "tools/kiln/report/data.hpp"

namespace kiln::cli {

/// What the page's charts are drawn from: "kiln.report-data/1".
Json report_json(const ReportData& data);
/// The same between <script> tags: nothing in it ends the element.
std::string script_text(const Json& json);

}  // namespace kiln::cli
