// The commands of the fleet's tier with a backend that is not Redis. They need
// only the functions of the backend interface.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include "base/file.hpp"
#include "remote/memory_backend.hpp"
#include "remote/trust_fixture.hpp"
#include "tools/kiln/doctor/fleet.hpp"
#include "tools/kiln/fleet/look.hpp"
#include "tools/kiln/fleet/missed.hpp"
#include "tools/kiln/fleet/prune.hpp"

namespace kiln::cli {
namespace {

using namespace std::chrono_literals;
using testing::some_entry;

class AnyBackend : public ::testing::Test {
 protected:
  void put(const fleet::PublishedRecord& entry, const trust::SigningKey& signer) {
    const fleet::ToolchainRow row{entry.key, 7, 100, true, "13.0", entry.toolchain};
    ASSERT_TRUE(server_->put(entry.key, fleet::seal_row(row, &signer), fleet::seal_envelope(entry, &signer),
                             base::Deadline::never()));
  }
  static fleet::TierOptions options(std::shared_ptr<const trust::SigningKey> signer) {
    fleet::TierOptions out;
    out.fleet = true;
    out.signer = std::move(signer);
    return out;
  }

  const std::shared_ptr<testing::MemoryBackend> server_ = std::make_shared<testing::MemoryBackend>();
  const std::shared_ptr<const trust::SigningKey> key_ =
      std::make_shared<const trust::SigningKey>(testing::signing_key(1));
  fleet::Tier tier_{options(key_), server_, std::make_shared<fleet::Counts>()};
};

TEST_F(AnyBackend, DoctorFindsAServerWell) {
  put(some_entry(1), *key_);
  Findings found;
  probe_servers(tier_, found);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].status, Finding::Status::ok);
  EXPECT_TRUE(found[0].text.starts_with("memory answers in ")) << found[0].text;
  EXPECT_NE(found[0].text.find(", 2 keys; this node reads and writes"), std::string::npos) << found[0].text;
}

TEST_F(AnyBackend, DoctorSaysWhatTheBackendAdvises) {
  fleet::ServerLook look;
  look.advice = {"it forgets everything"};
  server_->say(look);
  Findings found;
  probe_servers(tier_, found);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].status, Finding::Status::note);
  EXPECT_EQ(found[1].text, "memory: it forgets everything");
}

TEST_F(AnyBackend, DoctorSaysWhyAServerDoesNotAnswer) {
  server_->fail(fleet::Fault::connect, "nobody listens");
  Findings found;
  probe_servers(tier_, found);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].status, Finding::Status::warning);
  EXPECT_EQ(found[0].text,
            "memory does not answer: connect: nobody listens; kernels are compiled here meanwhile");
  EXPECT_EQ(found[0].fix, "start the server, or correct KILN_REMOTE");
}

TEST_F(AnyBackend, StatusShowsWhatTheServerSaysAndNullForTheRest) {
  fleet::ServerLook said;
  said.version = "1";
  said.used_bytes = 4711;
  said.persists = false;
  server_->say(said);
  put(some_entry(1), *key_);
  const auto looks = look_at_servers(tier_);
  ASSERT_EQ(looks.size(), 1u);
  const Json up = json_of(looks[0]);
  EXPECT_EQ(up["name"], "memory");
  EXPECT_EQ(up["answers"], true);
  EXPECT_TRUE(up["fault"].is_null());
  EXPECT_TRUE(up["detail"].is_null());
  EXPECT_EQ(up["version"], "1");
  EXPECT_EQ(up["keys"], 2);
  EXPECT_EQ(up["used_bytes"], 4711);
  EXPECT_TRUE(up["max_bytes"].is_null());
  EXPECT_TRUE(up["policy"].is_null());
  EXPECT_EQ(up["persists"], false);
  EXPECT_EQ(up["missing"], 0);
  EXPECT_EQ(up["advice"], Json::array());

  server_->fail(fleet::Fault::timeout);
  const Json down = json_of(look_at_servers(tier_).at(0));
  EXPECT_EQ(down["answers"], false);
  EXPECT_EQ(down["fault"], "timeout");
  EXPECT_EQ(down["detail"], "as the test wants");
  EXPECT_TRUE(down["round_trip_ms"].is_null());
  EXPECT_TRUE(down["missing"].is_null());
}

TEST_F(AnyBackend, PruneTakesWhatNobodyCanUse) {
  put(some_entry(1), *key_);
  put(some_entry(2), testing::signing_key(2));
  put(some_entry(3), *key_);
  server_->spoil(some_entry(3).key);
  server_->leave_other_version("of another version");
  const Pruned dry = prune_tier(tier_, {.toolchain = "", .all = false, .dry_run = true});
  EXPECT_EQ(dry.scanned, 7u);
  EXPECT_EQ(dry.unusable, 2u);
  EXPECT_EQ(dry.rows, 1u);
  EXPECT_EQ(dry.others, 1u);
  EXPECT_EQ(dry.removed, 0u);
  const Pruned done = prune_tier(tier_, {});
  EXPECT_FALSE(done.fault) << done.fault.text;
  EXPECT_EQ(done.removed, 4u);
  EXPECT_EQ(prune_tier(tier_, {}).kept, 2u) << "the entry that is believed, and its row";
  EXPECT_EQ(prune_tier(tier_, {.toolchain = some_entry(1).key.toolchain.hex()}).chosen, 1u);
  prune_tier(tier_, {.toolchain = "", .all = true});
  EXPECT_EQ(prune_tier(tier_, {}).scanned, 0u);
  server_->fail(fleet::Fault::closed);
  EXPECT_TRUE(prune_tier(tier_, {}).fault.down);
}

class AnyBackendMissed : public AnyBackend {
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
