// The findings of `kiln lint` about a template.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::cli {

struct LintFinding {
  enum class Severity { note, warning, error };
  std::string id;  ///< one of kLintIds
  Severity severity = Severity::note;
  std::string template_name;
  std::string place;  ///< FILE:LINE, or FILE
  std::string text;   ///< the problem, and what to do
};
using LintFindings = std::vector<LintFinding>;
using Severity = LintFinding::Severity;

/// Ids are stable, because scripts name them in --allow.
inline constexpr std::array<std::string_view, 26> kLintIds = {
    "manifest",        "missing-file",    "unused-parameter",     "unused-derive", "unused-export",
    "unused-runtime",  "shape-in-define", "no-reference",         "no-tolerance",  "no-shape",
    "no-doc",          "no-summary",      "no-prewarm",           "no-cost",       "no-limits",
    "not-compiled",    "compile",         "argument-layout",      "block",         "cluster",
    "debris",          "spills",          "performance-warnings", "unpublishable", "computed-include",
    "strict-candidate"};

inline std::uint64_t count(const LintFindings& findings, Severity severity) {
  return static_cast<std::uint64_t>(std::count_if(
      findings.begin(), findings.end(), [&](const LintFinding& f) { return f.severity == severity; }));
}

}  // namespace kiln::cli
