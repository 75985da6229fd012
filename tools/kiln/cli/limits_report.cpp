#include "tools/kiln/cli/limits_report.hpp"

#include "cache/trust/minisign.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {

std::optional<std::vector<compile::BrokenLimit>> broken_today(source::Catalog& catalog,
                                                              const compile::Facts& facts) {
  if (facts.unit.find('@') != std::string::npos)
    return std::vector<compile::BrokenLimit>();  // a reference
                                                 // has no limits
  try {
    return compile::broken_limits(catalog.open(facts.unit)->manifest.limits, facts,
                                  compile::Strictness::declared);
  } catch (const Error&) {
    return std::nullopt;
  }
}

Json limits_json(const std::vector<compile::BrokenLimit>& broken) {
  Json out = Json::array();
  for (const compile::BrokenLimit& limit : broken) {
    out.push_back({{"name", limit.name},
                   {"measured", limit.measured},
                   {"allowed", limit.allowed},
                   {"message", limit.sentence}});
  }
  return out;
}

void print_limits(const compile::Facts& facts, const std::vector<compile::BrokenLimit>& broken,
                  std::size_t indent) {
  for (const std::string& warning : compile::performance_warnings_of(facts))
    print_definition("warning", trust::printable(warning), indent);
  for (const compile::BrokenLimit& limit : broken) print_definition("over limit", limit.sentence, indent);
}

std::string say_broken(const compile::Facts& facts, const std::vector<compile::BrokenLimit>& broken) {
  std::string message = compile::limits_sentence(facts, broken) + " (--strict)";
  for (const std::string& warning : compile::performance_warnings_of(facts))
    message += '\n' + trust::printable(warning);
  std::fflush(stdout);
  const std::string line = "kiln: " + paint("error", Style::red, standard_error()) + ": " + message + '\n';
  std::fputs(line.c_str(), stderr);
  return message;
}

}  // namespace kiln::cli
