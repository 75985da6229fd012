// The page of `kiln report`: its sources are tools/kiln/report/page.{html,css,js}, embedded by the build.
#pragma once

#include <string>
#include <string_view>

#include "report_data.hpp"

namespace kiln::cli {

extern const std::string_view kPageHtml, kPageCss, kPageJs;
/// SHA-256 of the bytes of the two above, in hexadecimal: what the page's policy lets run.
extern const std::string_view kPageCssSha256, kPageJsSha256;

/// The whole page: one HTML file that asks for nothing else. Without scripts its tables remain.
std::string report_page(const ReportData& data);

/// What the page's charts are drawn from: "kiln.report-data/1".
Json report_json(const ReportData& data);
/// The same between <script> tags: nothing in it ends the element.
std::string script_text(const Json& json);

/// For text and attribute values.
std::string html(std::string_view text);

// The tables, in HTML.
std::string totals_html(const ReportData& data);
std::string notes_html(const ReportData& data);
std::string bytes_table_html(const ReportData& data);
/// Text: what run it was.
std::string prewarm_lead_html(const ReportData& data);
std::string lanes_table_html(const ReportData& data);
std::string times_table_html(const ReportData& data);
std::string lifetime_html(const ReportData& data);
std::string slowest_table_html(const ReportData& data);
std::string largest_table_html(const ReportData& data);

/// "2026-03-01 14:05 UTC"
std::string utc_text(std::int64_t seconds);

}  // namespace kiln::cli
