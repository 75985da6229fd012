// kiln bundle with blobs: the bytes of other JIT compilers travel signed or not at all.
#include "cache/blob/blob.hpp"
#include "cache/store/store.hpp"
#include "tools/bundle/fixture.hpp"

using namespace kiln;
using namespace kiln::test;
using namespace kiln::testing;

namespace {

struct BundleBlobs : StoreCommand {
  void SetUp() override {
    StoreCommand::SetUp();
    put({"triton", "v1", "a"}, std::string(10'000, 'x'));
    put({"inductor", "v1", "b"}, "pickle");
    ASSERT_EQ(kiln({"bundle", "keygen", path("k")}).status, 0);
    const Finished done =
        kiln({"bundle", "export", path("a.kb"), "--all-jits", "--sign", path("k.key"), "--json"});
    ASSERT_EQ(done.status, 0) << done.err;
    ASSERT_EQ(done.json()["entries"], 2);
  }
  void put(const cache::BlobName& name, const std::string& content) {
    const auto store = cache::Store::open({cache()});
    cache::each_record(name, content, cache::kBlobPart, [&](cache::Record&& record) {
      ASSERT_EQ(store->put(record).put, cache::Put::stored);
    });
  }
  Environment other() { return {{"KILN_CACHE_DIR", path("other")}}; }
};

}  // namespace

TEST_F(BundleBlobs, ASignedBundleBringsThem) {
  const auto imported =
      kiln({"bundle", "import", path("a.kb"), "--require-signature", path("k.pub"), "--json"}, other());
  ASSERT_EQ(imported.status, 0) << imported.err;
  EXPECT_EQ(imported.json()["stored"], 2);
  const auto stats = kiln({"stats", "--json"}, other()).json();
  EXPECT_EQ(stats["blobs"], 2);
  EXPECT_EQ(stats["cubin_bytes"], 0);
  EXPECT_EQ(kiln({"bundle", "diff", path("a.kb"), "--store"}, other()).status, 0);
  const cache::BlobKey key = cache::blob_key({"inductor", "v1", "b"});
  const auto there = cache::Store::open({path("other")})
                         ->get(key.key, key.text, base::Deadline::after(std::chrono::seconds(10)));
  ASSERT_TRUE(there.record);
  EXPECT_EQ(there.record->image, "pickle");
}

TEST_F(BundleBlobs, WithoutAVerifiedSignatureNothingOfThemIsImported) {
  const Finished refused = kiln({"bundle", "import", path("a.kb")}, other());
  EXPECT_EQ(refused.status, 4);
  EXPECT_NE(
      refused.err.find("they are imported only with a verified signature; give --require-signature KEY"),
      std::string::npos)
      << refused.err;
  EXPECT_EQ(kiln({"stats", "--json"}, other()).json()["entries"], 0);
  EXPECT_EQ(kiln({"bundle", "verify", path("a.kb")}).status, 0);
}

TEST_F(BundleBlobs, ABlobWhosePartsDisagreeIsRefused) {
  cache::Record good;
  cache::each_record({"s", "v1", "k"}, "content", cache::kBlobPart,
                     [&](cache::Record&& record) { good = std::move(record); });
  cache::Record other;
  cache::each_record({"s", "v1", "l"}, "content", cache::kBlobPart,
                     [&](cache::Record&& record) { other = std::move(record); });
  const auto verify = [&](const cache::Record& record) {
    std::string bytes;
    bundle::Writer writer([&](std::string_view more) { bytes += more; });
    writer.add(record);
    writer.end();
    write("one.kb", bytes);
    return kiln({"bundle", "verify", path("one.kb")});
  };
  EXPECT_EQ(verify(good).status, 0);
  const auto refused = [&](cache::Record record, const std::string& why) {
    const Finished done = verify(record);
    EXPECT_EQ(done.status, 4) << why;
    EXPECT_NE(done.err.find(why), std::string::npos) << done.err;
  };
  const std::string names = "its facts and its key text name different blobs";
  for (std::size_t size = good.key_text.find('\n') + 1; size < good.key_text.size(); ++size)
    refused({good.key, good.facts, good.key_text.substr(0, size), good.image}, names);
  refused({good.key, good.facts, good.key_text + '\n', good.image}, names);
  refused({good.key, other.facts, good.key_text, good.image}, names);
  refused({other.key, good.facts, good.key_text, good.image}, "its key does not match its key text");
  refused({good.key, good.facts.substr(0, 20), good.key_text, good.image}, "its blob is damaged");
  refused({good.key, good.facts, good.key_text, "conten"}, "its bytes are not those that its facts describe");
}

TEST_F(BundleBlobs, TheyAreLeftOutUnlessAskedFor) {
  const Finished none = kiln({"bundle", "export", path("b.kb"), "--all", "--json"});
  EXPECT_EQ(none.status, 0) << none.err;
  EXPECT_EQ(none.json()["entries"], 0);
  EXPECT_EQ(none.json()["other_version"], 0) << "they are no faults";
  EXPECT_EQ(kiln({"ls", "--json"}).json()["count"], 0);
  EXPECT_NE(kiln({"ls"}).out.find("only 2 records of other JIT compilers"), std::string::npos);
}

TEST_F(BundleBlobs, AnExportHasTheSameBytesEachTime) {
  ASSERT_EQ(kiln({"bundle", "export", path("b.kb"), "--all-jits"}).status, 0);
  EXPECT_EQ(base::read_file(path("a.kb"))->bytes, base::read_file(path("b.kb"))->bytes);
}
