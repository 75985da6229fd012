// The rows that `kiln prewarm --missed` takes from a backend that is not Redis.
#include <sys/stat.h>

#include "base/file.hpp"
#include "tools/fleet/any_backend.hpp"
#include "tools/kiln/prewarm/missed.hpp"

namespace kiln::cli {
namespace {

class AnyBackendMissed : public testing::AnyBackend {
 protected:
  void SetUp() override {
    const std::string templates = directory_.path() + "/templates";
    ASSERT_EQ(::mkdir(templates.c_str(), 0755), 0);
    base::write_file(templates + "/scale.toml",
                     "format = 1\n[template]\nname = \"scale\"\nsource = \"scale.cu\"\n"
                     "instantiate = \"scale<{N}>\"\n[param.N]\nkind = \"int\"\nrange = [1, 9]\n"
                     "[launch]\ngrid = [\"1\"]\nblock = [\"1\"]\n");
    base::write_file(templates + "/scale.cu", "template <int N> __global__ void scale() {}\n");
    context_.cache_dir = directory_.path() + "/cache";
    context_.template_path = templates;
  }
  void report(const std::string& row) {
    ASSERT_TRUE(server_->report({&row, 1}, base::Deadline::never()).at(0));
  }

  const base::TempDir directory_{"kiln-any-backend"};
  Context context_;
};

TEST_F(AnyBackendMissed, OnlyWhatWasMadeAndWhatIsNoRowIsForgotten) {
  const auto row = [](const std::string& name, int n) {
    return "[[prewarm]]\ntemplate = \"" + name + "\"\narch = \"sm_90a\"\nN = \"" + std::to_string(n) +
           "\"\n# end\n";
  };
  for (const std::string& reported :
       {row("scale", 3), std::string("no row"), row("elsewhere", 4), row("scale", 3), row("scale", 5)})
    report(reported);
  MissedRows rows(context_, tier_);
  EXPECT_TRUE(rows.found());
  EXPECT_FALSE(rows.fault());
  const PrewarmPlan plan = make_plan(context_, {rows.file()}, {}, {});
  ASSERT_EQ(plan.tasks.size(), 2u);
  PrewarmResult result;
  result.tasks.resize(2);
  result.tasks[0].state = TaskResult::State::done;
  result.tasks[1].state = TaskResult::State::failed;
  rows.forget(plan, result);
  EXPECT_EQ(server_->missed(), (std::vector<std::string>{row("elsewhere", 4), row("scale", 5)}));
}

TEST_F(AnyBackendMissed, MoreRowsThanAPageHoldsAreAllRead) {
  for (int i = 0; i < 200; ++i) report("no row");
  MissedRows rows(context_, tier_);
  EXPECT_FALSE(rows.found());
  rows.forget({}, {});
  EXPECT_TRUE(server_->missed().empty());
}

TEST_F(AnyBackendMissed, AServerThatIsDownIsAFault) {
  server_->fail(fleet::Fault::timeout);
  const MissedRows rows(context_, tier_);
  EXPECT_FALSE(rows.found());
  EXPECT_TRUE(rows.fault().down);
}

}  // namespace
}  // namespace kiln::cli
