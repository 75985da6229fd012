// The page of `kiln report`. The build embeds its sources, tools/kiln/report/page.{html,css,js}.
#pragma once

#include <string>
#include <string_view>

#include "tools/kiln/report/data.hpp"

namespace kiln::cli {

extern const std::string_view kPageHtml, kPageCss, kPageJs;
/// SHA-256 of the style and of the script, in hexadecimal. The page's policy allows only these two.
extern const std::string_view kPageCssSha256, kPageJsSha256;

/// The whole page as one HTML file that loads nothing else. Its tables work without scripts.
std::string report_page(const ReportData& data);

}  // namespace kiln::cli
