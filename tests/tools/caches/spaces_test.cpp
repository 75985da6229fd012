// kiln caches ls, stats and clear.
#include "cache/blob/blob.hpp"
#include "tools/caches/fixture.hpp"

using namespace kiln;
using namespace kiln::test;

namespace {

struct CacheSpaces : CachesCommand {
  void SetUp() override {
    CachesCommand::SetUp();
    put({"triton", "v1", "a"}, std::string(10'000, 'x'));
    put({"triton", "v2", "b"}, "second");
    put({"inductor", "v1", "c"}, "graph");
  }
};

}  // namespace

TEST_F(CacheSpaces, LsCountsEachSpaceAndCompatibility) {
  const Finished done = kiln({"caches", "ls", "--json"});
  ASSERT_EQ(done.status, 0) << done.err;
  auto spaces = done.json()["spaces"];
  ASSERT_EQ(spaces.size(), 3u);
  EXPECT_EQ(spaces[0]["space"], "inductor");
  EXPECT_EQ(spaces[1]["space"], "triton");
  EXPECT_EQ(spaces[1]["compatibility"], "v1");
  EXPECT_EQ(spaces[1]["content_bytes"], 10'000);
  EXPECT_LT(spaces[1]["stored_bytes"], 1000) << "it is stored compressed";
  EXPECT_GT(spaces[1]["last_used"], 1'700'000'000);
  EXPECT_NE(kiln({"caches", "ls"}).out.find("triton"), std::string::npos);
}

TEST_F(CacheSpaces, LsOfASpaceShowsItsBlobs) {
  auto json = kiln({"caches", "ls", "triton", "--json"}).json();
  ASSERT_EQ(json["blobs"].size(), 2u);
  EXPECT_EQ(json["blobs"][1]["key"], "b");
  EXPECT_EQ(json["blobs"][1]["content_bytes"], 6);
  EXPECT_EQ(json["blobs"][1]["directory"], cache());
  const Finished table = kiln({"caches", "ls", "triton"});
  EXPECT_NE(table.out.find("'b'"), std::string::npos) << table.out;
  EXPECT_EQ(table.out.find("inductor"), std::string::npos) << table.out;
}

TEST_F(CacheSpaces, LsHasTheBytesOfAKeyThatIsNoText) {
  put({"raw", "v1", std::string("k\0\xff", 3)}, "content");
  auto json = kiln({"caches", "ls", "raw", "--json"}).json();
  ASSERT_EQ(json["blobs"].size(), 1u);
  EXPECT_EQ(json["blobs"][0]["key_hex"], "6b00ff");
}

TEST_F(CacheSpaces, ControlCharactersOfACompatibilityAreEscaped) {
  put({"triton", "v3\x1b[2J\n", "d"}, "third");
  for (const Arguments& command : {Arguments{"caches", "ls"}, Arguments{"caches", "ls", "triton"},
                                   Arguments{"caches", "why", "triton"}}) {
    const Finished done = kiln(command);
    EXPECT_EQ(done.out.find('\x1b'), std::string::npos) << done.out;
    EXPECT_NE(done.out.find("v3\\x1b"), std::string::npos) << done.out;
  }
}

TEST_F(CacheSpaces, ASpaceWithoutBlobsIsNamed) {
  const Finished done = kiln({"caches", "ls", "tritan"});
  EXPECT_EQ(done.status, 2);
  EXPECT_NE(done.err.find("did you mean 'triton'"), std::string::npos) << done.err;
}

TEST_F(CacheSpaces, WhyListsWhatItKnowsWhenANameIsUnknown) {
  const Finished done = kiln({"caches", "why", "tritan"});
  EXPECT_EQ(done.status, 2);
  for (const std::string text : {"did you mean 'triton'", "spaces with blobs: ", "inductor", "flashinfer"})
    EXPECT_NE(done.err.find(text), std::string::npos) << done.err;
}

TEST_F(CacheSpaces, ALayersBlobIsListedOnce) {
  put({"triton", "v1", "a"}, std::string(10'000, 'x'), path("layer"));
  put({"triton", "v1", "layered"}, "l", path("layer"));
  auto blobs =
      kiln({"caches", "ls", "triton", "--json"}, {{"KILN_CACHE_LAYERS", path("layer")}}).json()["blobs"];
  ASSERT_EQ(blobs.size(), 3u);
  for (const auto& blob : blobs)
    EXPECT_EQ(blob["directory"], blob["compatibility"] == "v2" ? cache() : path("layer"));
}

TEST_F(CacheSpaces, ALargeBlobIsOneBlob) {
  const std::string content(cache::kBlobPart + 5, 'x');
  put({"large", "v1", "k"}, content);
  auto spaces = kiln({"caches", "ls", "--json"}).json()["spaces"];
  EXPECT_EQ(spaces[1]["space"], "large");
  EXPECT_EQ(spaces[1]["blobs"], 1);
  EXPECT_EQ(spaces[1]["content_bytes"], content.size());
  EXPECT_EQ(kiln({"caches", "clear", "large", "--json"}).json()["removed"], 1);
  EXPECT_EQ(kiln({"stats", "--json"}).json()["blobs"], 3) << "no part is left";
}

TEST_F(CacheSpaces, StatsHasTheKernelsToo) {
  fill(3);
  auto json = kiln({"caches", "stats", "--json"}).json();
  EXPECT_EQ(json["kernels"]["count"], 3);
  EXPECT_EQ(json["choices"]["count"], 0);
  ASSERT_EQ(json["spaces"].size(), 2u);
  EXPECT_EQ(json["spaces"][1]["compatibilities"], 2);
  std::uint64_t sum = json["kernels"]["stored_bytes"];
  for (const auto& space : json["spaces"]) sum += space["stored_bytes"].get<std::uint64_t>();
  EXPECT_EQ(json["stored_bytes"], sum);
}

TEST_F(CacheSpaces, ClearTakesOneSpace) {
  auto dry = kiln({"caches", "clear", "triton", "-n", "--json"}).json();
  EXPECT_EQ(dry["removed"], 2);
  EXPECT_EQ(kiln({"caches", "ls", "triton", "--json"}).json()["blobs"].size(), 2u);
  EXPECT_EQ(kiln({"caches", "clear", "triton", "--json"}).json()["removed"], 2);
  auto spaces = kiln({"caches", "ls", "--json"}).json()["spaces"];
  ASSERT_EQ(spaces.size(), 1u);
  EXPECT_EQ(spaces[0]["space"], "inductor");
}

TEST_F(CacheSpaces, ClearTakesOneCompatibility) {
  auto json = kiln({"caches", "clear", "triton", "--compatibility", "v2", "--json"}).json();
  EXPECT_EQ(json["removed"], 1);
  EXPECT_EQ(json["kept"], 1);
  EXPECT_EQ(kiln({"caches", "ls", "triton", "--json"}).json()["blobs"][0]["key"], "a");
}

TEST_F(CacheSpaces, ClearKeepsWhatWasUsedLately) {
  EXPECT_EQ(kiln({"caches", "clear", "triton", "--older-than", "1h", "--json"}).json()["removed"], 0);
  const Finished wrong = kiln({"caches", "clear", "triton", "--older-than", "soon"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("expected a number with s, m, h, d or w"), std::string::npos) << wrong.err;
}

TEST_F(CacheSpaces, ClearTakesPartsThatBelongToNoBlob) {
  const std::string content(cache::kBlobPart + 5, 'x');
  put({"large", "v1", "k"}, content);
  put({"large", "v1", "stays"}, content);
  ASSERT_EQ(open()->remove({cache::blob_key({"large", "v1", "k"}).key}, base::Deadline::never()), 1u);
  put({"large", "v2", "small"}, "content");
  ASSERT_EQ(kiln({"stats", "--json"}).json()["blobs"], 9);
  EXPECT_EQ(kiln({"caches", "clear", "large", "--compatibility", "v2", "--json"}).json()["removed"], 1);
  EXPECT_EQ(kiln({"stats", "--json"}).json()["blobs"], 6) << "three of the first, and a blob with two parts";
}

TEST_F(CacheSpaces, ClearLeavesLayersAlone) {
  put({"triton", "v1", "layered"}, "l", path("layer"));
  auto json = kiln({"caches", "clear", "triton", "--json"}, {{"KILN_CACHE_LAYERS", path("layer")}}).json();
  EXPECT_EQ(json["removed"], 2);
  EXPECT_EQ(json["in_layers"], 1);
}
