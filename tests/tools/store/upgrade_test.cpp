// A store, a layer, a bundle and a tier of version 0.1 are never misread. This version makes kernels with another
// key schema, so it passes them over. tests/fixtures/upgrade/make.sh made the files with the command of 0.1.
#include <filesystem>

#include "support/places.hpp"
#include "tools/fleet/fixture.hpp"

namespace kiln::test {
namespace {

const std::string kLeft = std::string(places::kSourceDirectory) + "/tests/fixtures/upgrade/";

class Upgrade : public KilnCompiler {
 protected:
  void SetUp() override {
    KilnCompiler::SetUp();
    if (IsSkipped()) return;
    std::filesystem::copy(kLeft + "0.1", path("0.1"), std::filesystem::copy_options::recursive);
    std::filesystem::permissions(path("0.1/store/v1"), std::filesystem::perms::owner_all);
  }
  Environment with(const Environment& more) const {
    Environment out{{"KILN_TEMPLATE_PATH", kLeft + "templates"}};
    for (const auto& [name, value] : more) out[name] = value;
    return out;
  }
  Finished compile(const Environment& environment) {
    return kiln({"compile", "scale", "N=1", "--arch", "sm_90a", "--json"}, environment);
  }
};

TEST_F(Upgrade, AStoreIsPassedOverAndKept) {
  const Environment store = with({{"KILN_CACHE_DIR", path("0.1/store")}});
  const auto before = kiln({"ls", "--json"}, store).json();
  ASSERT_EQ(before["count"], 2) << before;
  EXPECT_EQ(kiln({"verify"}, store).status, 0);
  const Finished why = kiln({"why", "scale", "N=1", "--arch", "sm_90a"}, store);
  EXPECT_NE(why.out.find("the version of the key is 1 in the cached entry"), std::string::npos)
      << why.out << why.err;

  EXPECT_EQ(compile(store).json()["outcome"], "compiled");
  EXPECT_EQ(compile(store).json()["outcome"], "disk");
  EXPECT_EQ(kiln({"ls", "--json"}, store).json()["count"], 3) << "old records stay until they are evicted";
  const Finished verified = kiln({"verify"}, store);
  EXPECT_EQ(verified.status, 0) << verified.out;
  EXPECT_EQ(kiln({"gc", "--max-size", "4M"}, store).status, 0);
  EXPECT_EQ(compile(store).json()["outcome"], "disk");
}

TEST_F(Upgrade, ALayerIsPassedOver) {
  const Environment layer = with({{"KILN_CACHE_LAYERS", path("0.1/layer")}});
  const Finished compiled = compile(layer);
  ASSERT_EQ(compiled.status, 0) << compiled.err;
  EXPECT_EQ(compiled.json()["outcome"], "compiled");
  EXPECT_EQ(kiln({"verify", "--all"}, layer).status, 0);
}

TEST_F(Upgrade, ABundlesSignatureIsGoodAndItsEntriesAreSkipped) {
  const std::string bundle = path("0.1/kernels.kb"), key = path("0.1/release.pub");
  EXPECT_EQ(kiln({"bundle", "verify", bundle, "--require-signature", key}, with({})).status, 0);
  const Finished imported =
      kiln({"bundle", "import", bundle, "--require-signature", key, "--json"}, with({}));
  EXPECT_EQ(imported.status, 3) << imported.out << imported.err;
  EXPECT_EQ(imported.json()["other_version"], 2) << imported.out;
  EXPECT_EQ(compile(with({})).json()["outcome"], "compiled");
}

TEST_F(Upgrade, ATierIsPassedOverAndFilledBeside) {
  if (!testing::RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
  const testing::RedisServer server({"--dir", path("0.1"), "--dbfilename", "tier.rdb"});
  fleet::Client client(fleet::test::options(server.unix_url()));
  const auto entries = [&] {
    const fleet::Answer answer =
        client.call({{"KEYS", "kiln:1:*:e:*"}, {}, std::uint64_t{1} << 20}, base::Deadline::never());
    return answer.reply.elements.size();
  };
  ASSERT_EQ(kiln({"bundle", "keygen", path("fleet")}).status, 0);
  const auto node = [&](const std::string& name) {
    return with({{"KILN_CACHE_DIR", path(name)},
                 {"KILN_REMOTE", server.patient_url()},
                 {"KILN_REMOTE_MODE", "fleet"},
                 {"KILN_REMOTE_KEY", path("0.1/release.pub")},
                 {"KILN_REMOTE_SIGN", path("fleet.key")}});
  };
  ASSERT_EQ(entries(), 2u);
  EXPECT_EQ(compile(node("a")).json()["outcome"], "compiled");
  EXPECT_EQ(compile(node("b")).json()["outcome"], "remote") << "what this version published is found";
  EXPECT_EQ(entries(), 3u);
  const Finished status = kiln({"remote", "status", "--json"}, node("a"));
  EXPECT_EQ(status.status, 0) << status.out << status.err;
}

}  // namespace
}  // namespace kiln::test
