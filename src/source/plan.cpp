// [[prewarm]] rows, multiplied out.
#include <algorithm>
#include <set>

#include "base/text.hpp"
#include "kiln/error.hpp"
#include "source/instantiate.hpp"
#include "source/manifest_draft.hpp"
#include "source/quote.hpp"

namespace kiln::source {
namespace {

constexpr std::size_t kMaxPlanned = 1'000'000;

/// Appends every combination of the row's values, the last list varying fastest, without what is there
/// already.
class Plan {
 public:
  void add(const std::string& name, const PrewarmRow& row, const std::string& arch,
           const std::string& where) {
    std::size_t combinations = 1;
    for (const auto& [parameter, texts] : row.values) {
      if (__builtin_mul_overflow(combinations, texts.size(), &combinations) ||
          combinations > kMaxPlanned - out_.size()) {
        throw Error(Errc::manifest,
                    where + ": more than " + std::to_string(kMaxPlanned) + " specialisations");
      }
    }
    for (std::size_t n = 0; n < combinations; ++n) {
      PlannedSpecialization planned{name, std::vector<Parameter>(row.values.size()), arch};
      std::string identity = name + '\0' + arch;
      std::size_t rest = n;
      for (std::size_t i = row.values.size(); i-- > 0;) {
        const auto& [parameter, texts] = row.values[i];
        planned.values[i] = {parameter, texts[rest % texts.size()]};
        rest /= texts.size();
      }
      std::vector<Parameter> sorted = planned.values;  // rows may name their parameters in any order
      std::sort(sorted.begin(), sorted.end(),
                [](const Parameter& a, const Parameter& b) { return a.name < b.name; });
      for (const Parameter& p : sorted) identity += '\0' + p.name + '\0' + p.value;
      if (seen_.insert(std::move(identity)).second) out_.push_back(std::move(planned));
    }
  }
  std::vector<PlannedSpecialization> take() { return std::move(out_); }

 private:
  std::vector<PlannedSpecialization> out_;
  std::set<std::string> seen_;
};

}  // namespace

std::vector<PlannedSpecialization> shipped_plan(const Manifest& manifest) {
  Plan plan;
  for (const PrewarmRow& row : manifest.prewarm)
    plan.add(manifest.name, row, "", manifest.file + ':' + std::to_string(row.line) + ": [[prewarm]]");
  return plan.take();
}

std::vector<PlannedSpecialization> parse_plan(std::string_view toml, const std::string& file) {
  const TomlValue tree = parse_toml(toml, file);
  const TableReader root(tree, "", file, {"prewarm"});
  Plan plan;
  for (const TomlValue* table : root.tables("prewarm")) {
    const TableReader reader(*table, "[[prewarm]]", file);
    const std::string name = reader.need_line("template");
    std::string arch;
    PrewarmRow row;
    row.line = table->line;
    for (const auto& [key, value] : table->members) {
      if (key == "template") continue;
      if (key == "arch") {
        try {
          arch = base::Arch::parse(*reader.text("arch")).name();
        } catch (const Error& error) {
          if (error.code() == Errc::manifest) throw;
          reader.fail("arch", error.what());
        }
        continue;
      }
      if (!base::is_identifier(key)) reader.fail(key, quote(key) + " cannot be the name of a parameter");
      row.values.emplace_back(key, prewarm_texts(reader, key));
    }
    plan.add(name, row, arch, file + ':' + std::to_string(row.line) + ": [[prewarm]]");
  }
  return plan.take();
}

}  // namespace kiln::source
