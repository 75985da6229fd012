// The page of `kiln report`: its sources are tools/kiln/report/page.{html,css,js}, embedded by the build.
#pragma once

#include <string>
#include <string_view>

#include "tools/kiln/report/data.hpp"

namespace kiln::cli {

extern const std::string_view kPageHtml, kPageCss, kPageJs;
/// SHA-256 of the bytes of the two above, in hexadecimal: what the page's policy lets run.
extern const std::string_view kPageCssSha256, kPageJsSha256;

/// The whole page: one HTML file that asks for nothing else. Without scripts its tables remain.
std::string report_page(const ReportData& data);

}  // namespace kiln::cli
