// The findings of `kiln lint` about a template.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace kiln::cli {

struct LintFinding {
  enum class Severity { note, warning, error };
  std::string id;  ///< one of kLintIds (lint.hpp)
  Severity severity = Severity::note;
  std::string template_name;
  std::string place;  ///< FILE:LINE, or FILE
  std::string text;   ///< the problem, and what to do
};
using LintFindings = std::vector<LintFinding>;
using Severity = LintFinding::Severity;

inline std::uint64_t count(const LintFindings& findings, Severity severity) {
  return static_cast<std::uint64_t>(std::count_if(
      findings.begin(), findings.end(), [&](const LintFinding& f) { return f.severity == severity; }));
}

}  // namespace kiln::cli
