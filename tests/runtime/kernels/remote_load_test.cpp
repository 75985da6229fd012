// The fleet's tier through the public API, down to the driver.
#include "cache/trust/secret_key.hpp"
#include "runtime/fake_runtime.hpp"
#include "tests/fleet/redis_server.hpp"

namespace kiln::testing {
namespace {

class RemoteLoad : public FakeRuntime {
 protected:
  void SetUp() override {
    if (!RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
    FakeRuntime::SetUp();
    if (IsSkipped()) return;
    const trust::SecretKey key = trust::SecretKey::generate();
    tree_.write("fleet.key", key.file().bytes());
    ::chmod(tree_.at("fleet.key").c_str(), 0600);
    server_.emplace();
  }
  Options node(const std::string& name) const {
    Options o = options();
    o.cache_dir = tree_.at(name);
    o.remote = server_->patient_url(), o.remote_mode = "fleet", o.remote_sign = tree_.at("fleet.key");
    return o;
  }
  std::optional<RedisServer> server_;
};

TEST_F(RemoteLoad, AnotherNodesImageIsLoadedAndLaunched) {
  {
    EXPECT_EQ(Service(node("a")).open("rms_norm").get(Dtype::bf16, 4096).info().outcome,
              KILN_OUTCOME_COMPILED);
  }
  Service b(node("b"));
  const Kernel k = b.open("rms_norm").get(Dtype::bf16, 4096);
  EXPECT_EQ(k.info().outcome, KILN_OUTCOME_REMOTE);
  RmsNormCall()(k);
  EXPECT_EQ(b.stats().remote_hits, 1u);
  EXPECT_EQ(b.stats().remote_state, KILN_REMOTE_WORKS);
  EXPECT_EQ(b.stats().compiles, 0u);
}

TEST_F(RemoteLoad, AnImageThatTheDriverRefusesIsCompiledInstead) {
  { Service(node("a")).open("rms_norm").get(Dtype::bf16, 4096); }
  Service b(node("b"));
  constexpr int kInvalidImage = 200;
  kiln_fake_fail("cuLibraryLoadData", kInvalidImage, 0, 1);
  const Kernel k = b.open("rms_norm").get(Dtype::bf16, 4096);
  EXPECT_EQ(k.info().outcome, KILN_OUTCOME_COMPILED);
  RmsNormCall()(k);
  EXPECT_EQ(b.stats().remote_hits, 1u) << "fetched, and refused by the driver";
  EXPECT_EQ(b.stats().compiles, 1u);
  EXPECT_EQ(b.stats().remote_puts, 0u) << "the fleet's entry is left to those whose driver takes it";
}

TEST_F(RemoteLoad, HermeticOptionsWithoutATierAskNobody) {
  ::setenv("KILN_REMOTE", server_->patient_url().c_str(), 1);
  Service service(options());
  service.open("rms_norm").get(Dtype::bf16, 4096);
  EXPECT_EQ(service.stats().remote_state, KILN_REMOTE_NONE);
  EXPECT_EQ(service.stats().remote_miss_absent, 0u);
  ::unsetenv("KILN_REMOTE");
}

}  // namespace
}  // namespace kiln::testing
