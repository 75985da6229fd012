#include "tools/kiln/report/page.hpp"
#include "tools/kiln/report/json.hpp"
#include "tools/kiln/report/lifetime.hpp"
#include "tools/kiln/report/prewarm.hpp"
#include "tools/kiln/report/spaces.hpp"
#include "tools/kiln/report/table.hpp"
#include "tools/kiln/report/tables.hpp"

#include <functional>
#include <map>

#include "kiln/kiln.h"

namespace kiln::cli {
namespace {

/// "sha256-..." in the form of a content security policy.
std::string policy_hash(std::string_view hex) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto nibble = [&](std::size_t i) {
    return static_cast<unsigned>(i >= hex.size() ? 0 : hex[i] <= '9' ? hex[i] - '0' : hex[i] - 'a' + 10);
  };
  std::string out = "sha256-";
  for (std::size_t i = 0; i < hex.size(); i += 6) {  // three bytes give four digits
    unsigned bits = 0;
    for (std::size_t j = 0; j < 6; ++j) bits = bits << 4 | nibble(i + j);
    for (int shift = 18; shift >= 0; shift -= 6) out += kDigits[bits >> shift & 63];
  }
  out.back() = '=';  // the last group of 32 bytes has only two bytes
  return out;
}

std::string policy() {
  return "default-src 'none'; style-src '" + policy_hash(kPageCssSha256) + "'; script-src '" +
         policy_hash(kPageJsSha256) + "'; base-uri 'none'; form-action 'none'";
}

std::string made_html(const ReportData& data) {
  return "<code>" + html(data.directory.empty() ? "no directory" : data.directory) + "</code>, " +
         html(utc_text(data.made_s)) + ", kiln " + html(kiln_version());
}

using Placeholders = std::map<std::string, std::function<std::string()>, std::less<>>;

Placeholders placeholders_of(const ReportData& data) {
  return {{"policy", policy},
          {"style", [] { return std::string(kPageCss); }},
          {"script", [] { return std::string(kPageJs); }},
          {"data", [&] { return script_text(report_json(data)); }},
          {"made", [&] { return made_html(data); }},
          {"notes", [&] { return notes_html(data); }},
          {"totals", [&] { return totals_html(data); }},
          {"bytes", [&] { return bytes_table_html(data); }},
          {"prewarm", [&] { return prewarm_lead_html(data); }},
          {"lanes", [&] { return lanes_table_html(data); }},
          {"times", [&] { return times_table_html(data); }},
          {"lifetime", [&] { return lifetime_html(data); }},
          {"spaces", [&] { return spaces_html(data); }},
          {"slowest", [&] { return slowest_table_html(data); }},
          {"largest", [&] { return largest_table_html(data); }}};
}

}  // namespace

/// Inserted text is not searched again, because a name may contain "{{".
std::string report_page(const ReportData& data) {
  const Placeholders placeholders = placeholders_of(data);
  std::string out;
  for (std::string_view rest = kPageHtml;;) {
    const std::size_t begin = rest.find("{{"), end = rest.find("}}", begin);
    if (begin == rest.npos || end == rest.npos) return out.append(rest);
    out.append(rest.substr(0, begin))
        .append(placeholders.at(std::string(rest.substr(begin + 2, end - begin - 2)))());
    rest.remove_prefix(end + 2);
  }
}

}  // namespace kiln::cli
