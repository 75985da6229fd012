// The data of the page's charts.
#pragma once

#include "tools/kiln/report/data.hpp"

namespace kiln::cli {

/// The data of the page's charts, with the schema "kiln.report-data/1".
Json report_json(const ReportData& data);
/// The spaces of blobs, as an array.
Json spaces_json(const ReportData& data);
/// The data as text for a <script> element. Nothing in it can end the element.
std::string script_text(const Json& json);

}  // namespace kiln::cli
