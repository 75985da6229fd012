// The page's head and its tables about entries.
#pragma once

#include <cstdint>

#include "tools/kiln/report/data.hpp"

namespace kiln::cli {

// The sections in HTML.
std::string totals_html(const ReportData& data);
std::string notes_html(const ReportData& data);
std::string bytes_table_html(const ReportData& data);
std::string times_table_html(const ReportData& data);
std::string slowest_table_html(const ReportData& data);
std::string largest_table_html(const ReportData& data);
/// "2026-03-01 14:05 UTC"
std::string utc_text(std::int64_t seconds);

}  // namespace kiln::cli
