// kiln ls, show and stats.
#include <sys/stat.h>

#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

using EmptyCache = KilnCommand;

TEST_F(EmptyCache, IsSaidAndNotCreated) {
  for (const char* command : {"ls", "stats"}) {
    const Finished r = kiln({command});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("Nothing is cached in " + cache()), std::string::npos) << r.out;
    EXPECT_NE(r.out.find("kiln prewarm"), std::string::npos) << r.out;
    EXPECT_EQ(r.err, "");
  }
  EXPECT_EQ(kiln({"ls", "--json"}).json()["entries"].size(), 0u);
  EXPECT_EQ(kiln({"stats", "--json"}).json()["entries"], 0);
  EXPECT_EQ(kiln({"show", "abc"}).status, 1);
  struct stat st {};
  EXPECT_NE(::stat(cache().c_str(), &st), 0);
}

class Cache : public KilnCompiler {
 protected:
  /// Fills the cache with scale: N = 1, 2, 10 for sm_90a and N = 1 for
  /// sm_80. Returns the key of N = 1 for sm_90a.
  std::string fill() {
    write("plan.toml",
          "[[prewarm]]\ntemplate = \"scale\"\nN = [10, 2, 1]\n[[prewarm]]\ntemplate = \"scale\"\nN = 1\narch "
          "= \"sm_80\"\n");
    EXPECT_EQ(kiln({"prewarm", path("plan.toml"), "--arch", "sm_90a"}).status, 0);
    return kiln({"compile", "scale", "N=1", "--arch", "sm_90a", "--json"}).json()["key"];
  }
};

TEST_F(Cache, ListIsSortedByTemplateArchAndParameters) {
  const std::string key = fill();
  const auto json = kiln({"ls", "--json"}).json();
  EXPECT_EQ(json["schema"], "kiln.ls/1");
  std::vector<std::string> seen;
  for (const auto& e : json["entries"])
    seen.push_back(e["arch"].get<std::string>() + ' ' + e["params"]["N"].get<std::string>());
  EXPECT_EQ(seen, (std::vector<std::string>{"sm_80 1", "sm_90a 1", "sm_90a 2", "sm_90a 10"}));
  const auto& entry = json["entries"][1];
  EXPECT_EQ(entry["key"], key);
  EXPECT_EQ(entry["template"], "scale");
  for (const char* field : {"cubin_bytes", "stored_bytes", "created", "registers", "spill_bytes"}) {
    EXPECT_TRUE(entry[field].is_number_integer()) << field;
  }
  EXPECT_TRUE(entry["nvrtc"].is_string());
}

TEST_F(Cache, TableLeavesOutDefaultsUnlessFull) {
  const std::string key = fill();
  const Finished r = kiln({"ls"});
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out.rfind("KEY", 0), 0u) << r.out;
  EXPECT_NE(r.out.find(key.substr(0, 12) + "  scale     N=1         sm_90a"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("4 entries, "), std::string::npos) << r.out;
  EXPECT_EQ(r.out.find("FLAG"), std::string::npos) << r.out;
  EXPECT_NE(kiln({"ls", "--full"}).out.find("N=1 FLAG=false"), std::string::npos);
}

TEST_F(Cache, ListCanBeOfOneTemplate) {
  fill();
  EXPECT_EQ(kiln({"ls", "--template", "picky", "--json"}).json()["count"], 0);
  EXPECT_EQ(kiln({"ls", "--template", "picky"}).status, 0);
  EXPECT_EQ(kiln({"compile", "picky", "N=1"}).status, 0);
  EXPECT_EQ(kiln({"ls", "--template", "picky", "--json"}).json()["count"], 1);
  EXPECT_EQ(kiln({"ls", "--template", "none"}).status, 2) << "neither a template nor cached";
}

TEST_F(Cache, EntriesOfTemplatesThatAreGoneAreStillListed) {
  fill();
  EXPECT_NE(kiln({"ls"}, {{"KILN_TEMPLATE_PATH", path("nowhere")}}).out.find("N=10 FLAG=false"),
            std::string::npos);
}

TEST_F(Cache, ShowRendersTheKeyFieldByField) {
  const std::string key = fill();
  const Finished r = kiln({"show", key.substr(0, 16)});
  EXPECT_EQ(r.status, 0) << r.err;
  for (const std::string& text :
       {key, std::string("N=1 FLAG=false"), std::string("sm_90a"), std::string("scale<1, false>"),
        std::string("registers"), std::string("nvrtc")}) {
    EXPECT_NE(r.out.find(text), std::string::npos) << text << " in:\n" << r.out;
  }
  const auto json = kiln({"show", key, "--json"}).json();
  EXPECT_EQ(json["schema"], "kiln.show/1");
  EXPECT_EQ(json["key"], key);
  EXPECT_EQ(json["arguments"].size(), 2u);
  EXPECT_EQ(json["key_fields"][0]["label"], "kiln-key");
}

TEST_F(Cache, ShowWritesTheImage) {
  const std::string key = fill();
  EXPECT_EQ(kiln({"show", key, "--image", path("image")}).status, 0);
  EXPECT_EQ(kiln({"compile", "scale", "N=1", "--arch", "sm_90a", "-o", path("same")}).status, 0);
  const auto image = base::read_file(path("image")), same = base::read_file(path("same"));
  ASSERT_TRUE(image && same);
  EXPECT_EQ(image->bytes, same->bytes);
}

TEST_F(Cache, AnAmbiguousPrefixNamesTheCandidates) {
  const std::string key = fill();
  const Finished r = kiln({"show", ""});
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find(key.substr(0, 12)), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("scale N=10"), std::string::npos) << r.err;
}

TEST_F(Cache, AnAbsentKeyIsExitOne) {
  fill();
  const Finished r = kiln({"show", std::string(64, '0'), "--json"});
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(r.json().contains("error"));
}

TEST_F(Cache, StatsCountByTemplateAndArch) {
  fill();
  const auto json = kiln({"stats", "--json"}).json();
  EXPECT_EQ(json["schema"], "kiln.stats/1");
  EXPECT_EQ(json["directory"], cache());
  EXPECT_EQ(json["entries"], 4);
  EXPECT_EQ(json["by_template"]["scale"]["entries"], 4);
  EXPECT_EQ(json["by_arch"]["sm_80"]["entries"], 1);
  EXPECT_EQ(json["by_arch"]["sm_90a"]["entries"], 3);
  EXPECT_GT(json["compile_ms"].get<double>(), 0);
  EXPECT_GT(json["live_bytes"].get<double>(), json["cubin_bytes"].get<double>());
  EXPECT_GE(json["file_bytes"], json["live_bytes"]);
  EXPECT_NE(kiln({"stats"}).out.find("of compile time per full warm start"), std::string::npos);
}

TEST_F(Cache, ADamagedEntryIsExitFourAndHealedByTheNextCompile) {
  const std::string key = fill();
  const std::string file = cache() + "/v1/data.mdb";
  auto bytes = base::read_file(file)->bytes;
  const auto image = base::read_file(path("plan.toml"));
  ASSERT_TRUE(image);
  ASSERT_EQ(kiln({"show", key, "--image", path("image")}).status, 0);
  const auto good = base::read_file(path("image"))->bytes;
  const auto at = bytes.find(good.substr(0, 256));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 128] ^= 1;
  base::write_file(file, bytes, 0600);
  const Finished r = kiln({"show", key});
  EXPECT_EQ(r.status, 4) << r.err;
  EXPECT_NE(r.err.find("damaged"), std::string::npos) << r.err;
  EXPECT_EQ(kiln({"compile", "scale", "N=1", "--arch", "sm_90a", "--json"}).json()["outcome"], "compiled");
  EXPECT_EQ(kiln({"show", key}).status, 0);
}

}  // namespace
}  // namespace kiln::test
