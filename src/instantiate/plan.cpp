#include "instantiate/plan.hpp"

#include <algorithm>
#include <set>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "instantiate/trace_text.hpp"
#include "kiln/error.hpp"
#include "manifest/parameter_value.hpp"
#include "manifest/read/draft.hpp"
#include "manifest/read/prewarm_values.hpp"
#include "manifest/toml/table_reader.hpp"

namespace kiln::source {
namespace {

/// Appends every combination of the row's values and archs, where the last list varies fastest. Combinations
/// that are already there are left out.
class Product {
 public:
  void add(const std::string& name, const PrewarmRow& row, const std::shared_ptr<const PlanRow>& origin,
           const std::vector<std::string>& tuned = {}) {
    const std::vector<std::string> archs = row.archs.empty() ? std::vector<std::string>{""} : row.archs;
    const std::size_t count = count_of(row, archs.size(), *origin);
    for (std::size_t n = 0; n < count; ++n) {
      PlannedSpecialization planned{name, std::vector<Parameter>(row.values.size()), {}, tuned, origin};
      std::size_t rest = n;
      for (std::size_t i = row.values.size(); i-- > 0;) {
        const auto& [parameter, texts] = row.values[i];
        planned.values[i] = {parameter, texts[rest % texts.size()]};
        rest /= texts.size();
      }
      planned.arch = archs[rest];
      std::string identity = name + '\0' + planned.arch;
      std::vector<Parameter> sorted = planned.values;  // rows may name their parameters in any order
      std::sort(sorted.begin(), sorted.end(),
                [](const Parameter& a, const Parameter& b) { return a.name < b.name; });
      for (const Parameter& p : sorted) identity += '\0' + p.name + '\0' + p.value;
      for (const std::string& each : tuned) identity += '\0' + ("?" + each);
      if (seen_.insert(std::move(identity)).second)
        out_.push_back(std::move(planned));
      else
        ++repeats_;
    }
  }
  std::vector<PlannedSpecialization> take(PlanNotes* notes) {
    if (notes) notes->repeats += repeats_;
    return std::move(out_);
  }

 private:
  std::size_t count_of(const PrewarmRow& row, std::size_t archs, const PlanRow& origin) const {
    std::size_t count = archs;
    bool countable = true;
    for (const auto& [parameter, texts] : row.values)
      countable = countable && !__builtin_mul_overflow(count, texts.size(), &count);
    if (countable && count <= kMaxPlanned - out_.size()) return count;
    std::string message =
        origin.where() + ": " + (countable ? std::to_string(count) : "more than 2^64") + " specialisations";
    if (!out_.empty()) message += " after " + std::to_string(out_.size()) + " of the rows before";
    throw Error(Errc::manifest, message + "; a plan may have " + std::to_string(kMaxPlanned));
  }

  std::vector<PlannedSpecialization> out_;
  std::set<std::string> seen_;
  std::size_t repeats_ = 0;
};

}  // namespace

std::string PlanRow::where(std::string_view key) const {
  for (const auto& [name, at] : keys) {
    if (name == key) return file + ':' + std::to_string(at) + ": [[prewarm]] " + name;
  }
  return file + ':' + std::to_string(line) + ": [[prewarm]]";
}

std::vector<PlannedSpecialization> shipped_plan(const Manifest& manifest, PlanNotes* notes) {
  Product product;
  for (const PrewarmRow& row : manifest.prewarm) {
    product.add(manifest.name, row,
                std::make_shared<const PlanRow>(
                    PlanRow{manifest.file, row.line, std::vector<std::pair<std::string, int>>{}}));
  }
  return product.take(notes);
}

std::vector<PlannedSpecialization> with_every_value(const PlannedSpecialization& planned,
                                                    const Manifest& manifest) {
  std::vector<PlannedSpecialization> out{planned};
  for (std::size_t i = 0; i < planned.values.size(); ++i) {
    if (planned.values[i].value != kEveryValue) continue;
    const std::string& name = planned.values[i].name;
    const int index = parameter_index(manifest, name);
    if (index < 0) continue;  // resolve() says so
    const ParameterSpec& spec = manifest.parameters[static_cast<std::size_t>(index)];
    const std::vector<std::string> texts = every_value(spec);
    if (texts.empty()) {
      throw Error(Errc::invalid_value, "template " + base::quote(manifest.name) + ", parameter " +
                                           base::quote(name) +
                                           ": \"*\" stands for every value of a parameter that lists its "
                                           "values, and this one allows " +
                                           allowed_values(spec));
    }
    if (out.size() * texts.size() > kMaxPlanned) {
      throw Error(Errc::manifest, std::to_string(out.size() * texts.size()) +
                                      " specialisations; a plan may have " + std::to_string(kMaxPlanned));
    }
    std::vector<PlannedSpecialization> more;
    for (const PlannedSpecialization& one : out) {
      for (const std::string& text : texts) more.emplace_back(one).values[i].value = text;
    }
    out = std::move(more);
  }
  return out;
}

std::vector<PlannedSpecialization> parse_plan(std::string_view toml, const std::string& file,
                                              PlanNotes* notes) {
  std::string kept;
  if (is_trace(toml)) {
    std::vector<std::string> ignored;
    kept = finished_rows(toml, file, ignored);
    toml = kept;
    if (notes) notes->ignored.insert(notes->ignored.end(), ignored.begin(), ignored.end());
  }
  const TomlValue tree = parse_toml(toml, file);
  const TableReader root(tree, "", file, {"prewarm"});
  Product product;
  for (const TomlValue* table : root.tables("prewarm")) {
    const TableReader reader(*table, "[[prewarm]]", file);
    const std::string name = reader.need_line("template");
    PrewarmRow row;
    std::vector<std::string> tuned;
    const auto origin = std::make_shared<PlanRow>();
    origin->file = file, origin->line = table->line;
    for (const auto& [key, value] : table->members) {
      origin->keys.emplace_back(key, value.line);
      if (key == "template") continue;
      if (key == "tuned") {
        tuned = reader.lines(key);
        continue;
      }
      if (key == "arch") {
        row.archs = prewarm_archs(reader);
        continue;
      }
      if (!base::is_identifier(key))
        reader.fail(key, base::quote(key) + " cannot be the name of a parameter");
      row.values.emplace_back(key, prewarm_texts(reader, key));
    }
    for (const std::string& each : tuned) {
      if (std::none_of(row.values.begin(), row.values.end(), [&](const auto& v) { return v.first == each; }))
        reader.fail("tuned", base::quote(each) + " has no value in this row");
    }
    product.add(name, row, origin, tuned);
  }
  return product.take(notes);
}

}  // namespace kiln::source
