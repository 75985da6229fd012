// kiln audit: the cached images are those that their sources compile to.
#include <algorithm>

#include "support/nightly.hpp"
#include "tools/store_command.hpp"

namespace kiln::test {
namespace {

constexpr const char* kReduceManifest = R"toml(format = 1
[template]
name = "reduce"
source = "reduce.cu"
instantiate = "reduce<{N}>"
summary = "a block reduction"
[param.N]
kind = "int"
range = [1, 1024]
[[arg]]
name = "out"
type = "ptr<f32>"
access = "write"
[launch]
grid = ["1"]
block = ["128"]
)toml";
constexpr const char* kReduceSource = R"cu(#include <cub/block/block_reduce.cuh>
template <int N> __global__ void reduce(float* out) {
  using Reduce = cub::BlockReduce<float, 128>;
  __shared__ typename Reduce::TempStorage storage;
  const float sum = Reduce(storage).Sum(out[threadIdx.x] * N);
  if (threadIdx.x == 0) out[0] = sum;
}
)cu";

class Audit : public KilnCompiler {
 protected:
  void prewarm(const std::string& plan) {
    write("plan.toml", plan);
    const Finished r = kiln({"prewarm", path("plan.toml"), "--arch", "sm_90a"});
    ASSERT_EQ(r.status, 0) << r.err;
  }
  void prewarm_scale() { prewarm("[[prewarm]]\ntemplate = \"scale\"\nN = [1, 2, 3, 4]\n"); }
  nlohmann::json audit(const Arguments& more, int status, const Environment& environment = {}) {
    Arguments arguments{"audit", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished r = kiln(arguments, environment);
    EXPECT_EQ(r.status, status) << r.err << r.out;
    return r.json();
  }
  /// Copies every entry of this cache to the cache `to`, changed by `change`.
  template <class Change>
  void copy(const std::string& to, Change&& change) {
    cache::StoreOptions from_options, to_options;
    from_options.directory = cache(), to_options.directory = path(to);
    const auto from = cache::Store::open(from_options), copy = cache::Store::open(to_options);
    int number = 0;
    from->list([&](const cache::Entry& entry) {
      auto record = from->peek(entry.key, cache::test::soon());
      ASSERT_TRUE(record);
      change(number++, *record);
      ASSERT_EQ(copy->put(*record).put, cache::Put::stored);
    });
  }
};

TEST_F(Audit, AnEmptyCacheIsClean) {
  EXPECT_EQ(audit({}, 0)["audited"], 0);
  EXPECT_NE(kiln({"audit"}).out.find("Nothing is cached in " + cache()), std::string::npos);
}

TEST_F(Audit, ANormalCacheIsCleanAndLeftAsItIs) {
  prewarm_scale();
  ASSERT_EQ(kiln({"compile", "rms_norm", "T=bf16", "H=1024", "--arch", "sm_80"}).status, 0);
  const std::string before = base::read_file(cache() + "/v1/data.mdb")->bytes;
  const auto json = audit({"--all", "-j", "2"}, 0);
  EXPECT_EQ(json["schema"], "kiln.audit/1");
  EXPECT_EQ(json["entries"], 5);
  EXPECT_EQ(json["equal"], 5);
  for (const auto& result : json["results"]) {
    EXPECT_EQ(result["state"], "equal") << result;
    EXPECT_EQ(result["compiled_bytes"], result["cached_bytes"]);
    EXPECT_GT(result["compile_ms"], 0);
  }
  EXPECT_TRUE(base::read_file(cache() + "/v1/data.mdb")->bytes == before);
}

TEST_F(Audit, CubAndPrecompiledHeadersGiveTheSameBytes) {
  KILN_NIGHTLY_ONLY();  // eight compiles with CUB
  write("templates/reduce.toml", kReduceManifest);
  write("templates/reduce.cu", kReduceSource);
  write("plan.toml", "[[prewarm]]\ntemplate = \"reduce\"\nN = [1, 2, 3, 4]\n");
  const Finished made =
      kiln({"prewarm", path("plan.toml"), "--arch", "sm_90a", "-j1", "--log-level", "debug"});
  if (made.status != 0 && made.err.find("cub/block/block_reduce.cuh") != std::string::npos)
    GTEST_SKIP() << "the toolkit has no CUB here";
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(audit({"--all"}, 0)["equal"], 4);
}

TEST_F(Audit, ASampleIsChosenByItsSeed) {
  prewarm("[[prewarm]]\ntemplate = \"scale\"\nN = [1, 2, 3, 4, 5, 6, 7, 8]\n");
  const auto keys = [](const nlohmann::json& json) {
    std::vector<std::string> out;
    for (const auto& result : json["results"]) out.push_back(result["key"]);
    return out;
  };
  const auto first = audit({"--sample", "3", "--seed", "7"}, 0);
  EXPECT_EQ(first["seed"], 7);
  EXPECT_EQ(first["audited"], 3);
  EXPECT_EQ(keys(first), keys(audit({"--sample", "3", "--seed", "7"}, 0)));
  bool another = false;
  for (const char* seed : {"8", "9", "10", "11", "12"})
    another |= keys(first) != keys(audit({"--sample", "3", "--seed", seed}, 0));
  EXPECT_TRUE(another);
  EXPECT_EQ(audit({"--sample", "100"}, 0)["audited"], 8);
}

TEST_F(Audit, TemplateAndArchChooseEntries) {
  prewarm_scale();
  ASSERT_EQ(kiln({"compile", "picky", "N=1", "--arch", "sm_90a"}).status, 0);
  ASSERT_EQ(kiln({"compile", "scale", "N=1", "--arch", "sm_80"}).status, 0);
  EXPECT_EQ(audit({"--all", "-t", "picky"}, 0)["audited"], 1);
  EXPECT_EQ(audit({"--all", "--arch", "sm_80"}, 0)["audited"], 1);
  EXPECT_EQ(audit({"--all", "--arch", "sm_80,sm_90a"}, 0)["audited"], 6);
  const Finished none = kiln({"audit", "-t", "scale", "--arch", "sm_100a"});
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.err.find("kiln ls"), std::string::npos) << none.err;
}

TEST_F(Audit, AnotherImageUnderAValidRecordIsFound) {
  prewarm_scale();
  copy("other", [](int number, cache::Record& record) {
    if (number == 1) record.image[record.image.size() / 2] ^= 1;
  });
  ASSERT_EQ(kiln({"verify"}, {{"KILN_CACHE_DIR", path("other")}}).status, 0) << "nothing else finds it";
  const auto json = audit({"--all"}, 4, {{"KILN_CACHE_DIR", path("other")}});
  EXPECT_EQ(json["equal"], 3);
  EXPECT_EQ(json["differs"], 1);
  for (const auto& result : json["results"])
    if (result["state"] == "differs") {
      EXPECT_NE(result["reason"].get<std::string>().find("byte "), std::string::npos);
    }
  const Finished text = kiln({"audit", "--all"}, {{"KILN_CACHE_DIR", path("other")}});
  EXPECT_EQ(text.status, 4);
  EXPECT_NE(text.out.find("3 equal, 1 differs"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("kiln clear"), std::string::npos) << text.out;
}

TEST_F(Audit, AChangedByteOfTheCodeNamesItsSection) {
  prewarm("[[prewarm]]\ntemplate = \"scale\"\nN = 1\n");
  ASSERT_EQ(
      kiln({"show", kiln({"ls", "--json"}).json()["entries"][0]["key"], "--image", path("image")}).status, 0);
  // Changes a byte in the table of section names. A byte of any section would do.
  const std::string image = base::read_file(path("image"))->bytes;
  const std::size_t name = image.find(".text.");
  ASSERT_NE(name, std::string::npos);
  copy("other", [&](int, cache::Record& record) { record.image[name + 1] = 'T'; });
  const auto json = audit({"--all"}, 4, {{"KILN_CACHE_DIR", path("other")}});
  const std::string section = json["results"][0]["section"];
  EXPECT_TRUE(section.starts_with(".")) << section;
  EXPECT_NE(json["results"][0]["reason"].get<std::string>().find("section " + section), std::string::npos);
}

TEST_F(Audit, AnEditMakesEntriesNotComparableAndSaysWhatChanged) {
  prewarm_scale();
  ASSERT_EQ(kiln({"compile", "picky", "N=1", "--arch", "sm_90a"}).status, 0);
  write("templates/picky.cu", "template <int N> __global__ void picky() { static_assert(N != 3); }\n");
  auto json = audit({"--all"}, 3);
  EXPECT_EQ(json["equal"], 4);
  EXPECT_EQ(json["not_comparable"], 1);
  for (const auto& result : json["results"])
    if (result["template"] == "picky") {
      EXPECT_EQ(result["reason"], "source");
    }
  json = audit({"--all", "-t", "picky"}, 1);
  EXPECT_EQ(json["not_comparable"], 1);
  const std::string key = json["results"][0]["key"];
  EXPECT_NE(kiln({"audit", "--all"}).out.find("not comparable picky N=1 for sm_90a (" + key.substr(0, 12)),
            std::string::npos)
      << "a line names its entry";
  const Finished misspelt = kiln({"audit", "-t", "pickey"});
  EXPECT_EQ(misspelt.status, 2);
  EXPECT_NE(misspelt.err.find("did you mean 'picky'?"), std::string::npos) << misspelt.err;
}

TEST_F(Audit, ATemplateThatIsGoneIsNotComparable) {
  prewarm_scale();
  ASSERT_EQ(::unlink(path("templates/scale.toml").c_str()), 0);
  const auto json = audit({"--sample", "1"}, 1);
  EXPECT_NE(json["results"][0]["reason"].get<std::string>().find("scale"), std::string::npos);
}

TEST_F(Audit, WithoutACompilerNothingCanBeCompared) {
  prewarm_scale();
  const auto json = audit({"--all"}, 1, {{"KILN_CUDA_HOME", "/nonexistent/cuda"}});
  EXPECT_EQ(json["equal"], 0);
}

TEST_F(Audit, ADamagedEntryIsExitFour) {
  prewarm_scale();
  ASSERT_EQ(
      kiln({"show", kiln({"ls", "--json"}).json()["entries"][0]["key"], "--image", path("image")}).status, 0);
  const std::string image = base::read_file(path("image"))->bytes;
  std::string bytes = base::read_file(cache() + "/v1/data.mdb")->bytes;
  const std::size_t at = bytes.find(image.substr(0, 256));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 128] ^= 1;
  base::write_file(cache() + "/v1/data.mdb", bytes, 0600);
  const auto json = audit({"--all"}, 4);
  EXPECT_GE(json["damaged"], 1);
}

}  // namespace
}  // namespace kiln::test
