#include "compile/key/limits.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>

namespace kiln::compile {
namespace {

/// "12", "61.3".
std::string measured_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", number);
  return text;
}

}  // namespace

std::vector<std::string> performance_warnings_of(const Facts& facts) {
  std::vector<std::string> out = facts.performance_warnings;
  for (const EntryFacts& entry : facts.entries) {
    // A warning that names no function is in each entry.
    for (const std::string& line : entry.performance_warnings)
      if (std::find(out.begin(), out.end(), line) == out.end()) out.push_back(line);
  }
  return out;
}

std::vector<BrokenLimit> broken_limits(const source::Limits& limits, const Facts& facts,
                                       Strictness strictness) {
  std::vector<BrokenLimit> out;
  const auto check = [&](std::string_view name, const std::optional<std::int64_t>& allowed, double measured,
                         const char* one, const char* many) {
    if (!allowed || measured <= static_cast<double>(*allowed)) return;
    out.push_back({name, measured, *allowed,
                   measured_text(measured) + ' ' + (measured == 1 ? one : many) + ", and " +
                       std::string(name) + " allows " + std::to_string(*allowed)});
  };
  std::uint64_t spills = facts.spill_bytes();
  for (const EntryFacts& entry : facts.entries) spills = std::max(spills, entry.spill_bytes());
  auto warnings = limits.performance_warnings;
  if (strictness == Strictness::strict && !warnings) warnings = 0;
  check("max_spill_bytes", limits.max_spill_bytes, static_cast<double>(spills), "byte of spills",
        "bytes of spills");
  check("performance_warnings", warnings, static_cast<double>(performance_warnings_of(facts).size()),
        "performance warning of ptxas", "performance warnings of ptxas");
  check("compile_seconds", limits.compile_seconds, facts.compile_ms / 1000, "second to compile",
        "seconds to compile");
  check("compile_memory", limits.compile_memory, static_cast<double>(facts.peak_memory),
        "byte of memory to compile", "bytes of memory to compile");
  return out;
}

std::string limits_sentence(const Facts& facts, const std::vector<BrokenLimit>& broken) {
  std::string out =
      facts.specialization().to_string() + " for " + facts.arch + " breaks its manifest's limits: ";
  for (std::size_t i = 0; i < broken.size(); ++i) out += (i ? "; " : "") + broken[i].sentence;
  return out;
}

}  // namespace kiln::compile
