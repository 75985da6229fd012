// The templates of this repository: each parses, its plan resolves, and its closure is
// complete without a toolkit.
#include "closure/closure.hpp"
#include "instantiate/instantiate.hpp"
#include "instantiate/plan.hpp"
#include "library/work_lists.hpp"
#include "support/expect_error.hpp"
#include "support/places.hpp"

namespace kiln::source {
namespace {

const std::string kDirectory = std::string(places::kSourceDirectory) + "/templates";

TEST(Shipped, EveryTemplateParsesAndItsPlanResolves) {
  Catalog catalog({kDirectory}, {}, library::work_lists());
  const auto names = catalog.names();
  if (names.empty()) GTEST_SKIP() << "no templates in " << kDirectory;
  for (const std::string& name : names) {
    const auto opened = catalog.open(name);
    for (const PlannedSpecialization& planned : shipped_plan(opened->manifest)) {
      std::vector<NamedValue> values;
      for (const Parameter& p : planned.values) values.push_back({p.name, Value(p.value)});
      const Resolved resolved =
          resolve(opened->manifest, positional(opened->manifest, values), base::Arch{90});
      EXPECT_FALSE(instantiate(opened, resolved).name_expression.empty());
      if (opened->manifest.reference) {
        EXPECT_FALSE(instantiate(opened, resolved, Which::reference).name_expression.empty());
      }
    }
  }
}

TEST(Shipped, SlimTemplatesNeedNoToolkit) {
  Catalog catalog({kDirectory}, {}, library::work_lists());
  ScanCache cache;
  for (const std::string& name : catalog.names()) {
    const auto opened = catalog.open(name);
    const Closure closure =
        scan_closure(opened->kernel.read(), opened->manifest.compile.preinclude, {{opened->root}, {}}, cache);
    if (opened->manifest.compile.minimal) {
      EXPECT_EQ(closure.missing, std::vector<std::string>{}) << name;
    }
    EXPECT_FALSE(closure.computed) << name;
    EXPECT_TRUE(closure.date_time.empty()) << name;
  }
}

}  // namespace
}  // namespace kiln::source
