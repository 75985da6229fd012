// kiln ls and show: filters, orders, columns, prefixes, and stores that are damaged or read-only.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "cache/place/directory.hpp"
#include "compile/key/facts.hpp"
#include "tests/support/other_user.hpp"
#include "tools/store_command.hpp"
#include "tools/terminal.hpp"

namespace kiln::test {
namespace {

class Ls : public StoreCommand {
 protected:
  struct Row {
    std::string unit, arch, n;
    std::size_t image = 1000;
    std::int64_t created = 1'700'000'000;
    double compile_ms = 40;
  };
  /// Puts entry `number` as a compile would.
  void put(std::uint32_t number, const Row& row, const std::string& directory = {}) const {
    compile::Facts f;
    f.unit = row.unit, f.arch = row.arch, f.parameters = {{"N", row.n}, {"FLAG", "false"}};
    f.created_s = row.created, f.compile_ms = row.compile_ms, f.compiler_version = "13.0";
    f.registers = 32, f.max_threads = 256;
    ASSERT_EQ(open(directory)
                  ->put({cache::test::key_of(number), compile::encode(f), "kiln-key 1:1\n",
                         std::string(row.image, 'i')})
                  .put,
              cache::Put::stored);
  }
  void fill_rows() const {
    put(0x10000000, {"scale", "sm_80", "1", 5000, 1'700'000'300, 10});
    put(0x20000000, {"scale", "sm_90a", "2", 3000, 1'700'000'100, 30});
    put(0x21000000, {"scale", "sm_90a", "10", 9000, 1'700'000'200, 20});
    put(0x30000000, {"scale@reference", "sm_90a", "10", 100, 1'700'000'000, 5});
    put(0x40000000, {"gone", "sm_90a", "10", 200, 1'700'000'050, 50});
  }
  /// Makes a layer with two entries. A filled cache has one of them, too.
  std::string fill_layer() const {
    put(0x10000000, {"scale", "sm_80", "1", 5000, 1'700'000'300, 10}, path("layer"));
    put(0x50000000, {"scale", "sm_80", "7", 7000, 1'700'000'400, 10}, path("layer"));
    cache::share_layer(path("layer"));
    return path("layer");
  }
  std::string listed(const Arguments& more) {
    Arguments all{"ls", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const Finished r = kiln(all);
    EXPECT_EQ(r.status, 0) << r.err;
    std::string out;
    const auto json = r.json();
    for (const auto& e : json["entries"])
      out += (out.empty() ? "" : " ") + e["key"].get<std::string>().substr(0, 2);
    return out;
  }
};

TEST_F(Ls, FiltersHoldTogether) {
  fill_rows();
  EXPECT_EQ(listed({}), "40 10 20 21 30");
  EXPECT_EQ(listed({"N=10"}), "40 21 30");
  EXPECT_EQ(listed({"N=10", "-t", "scale"}), "21 30") << "a reference belongs to its template";
  EXPECT_EQ(listed({"N=10", "FLAG=true"}), "");
  EXPECT_EQ(listed({"--arch", "80"}), "10");
  EXPECT_EQ(listed({"--arch", "80,90", "-t", "scale", "N=2"}), "20");
  const auto json = kiln({"ls", "--json", "N=10", "-t", "scale", "-n", "1"}).json();
  EXPECT_EQ(json["count"], 1);
  EXPECT_EQ(json["matching"], 2);
  EXPECT_EQ(json["all"]["count"], 5);
  EXPECT_EQ(json["filters"]["params"][0], "N=10");
  EXPECT_EQ(json["filters"]["limit"], 1);
}

TEST_F(Ls, ATemplateIsKnownWhenItIsInstalledOrCached) {
  fill_rows();
  EXPECT_EQ(listed({"-t", "gone"}), "40") << "cached, and no longer installed";
  EXPECT_EQ(listed({"-t", "picky"}), "") << "installed, and not cached";
  const Finished r = kiln({"ls", "-t", "gonne"});
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("did you mean 'gone'"), std::string::npos) << r.err;
}

TEST_F(Ls, OrdersPutTheMostFirst) {
  fill_rows();
  EXPECT_EQ(listed({"--sort", "size"}), "21 10 20 40 30");
  EXPECT_EQ(listed({"--sort", "age"}), "10 21 20 40 30");
  EXPECT_EQ(listed({"--sort", "compile-time"}), "40 20 21 10 30");
  EXPECT_EQ(listed({"--sort", "size", "--reverse", "--limit", "2"}), "30 40");
  EXPECT_NE(kiln({"ls", "--sort", "compile-time"}).out.find("COMPILE"), std::string::npos);
  EXPECT_EQ(kiln({"ls"}).out.find("COMPILE"), std::string::npos);
}

TEST_F(Ls, MistakesNameWhatThereIs) {
  fill_rows();
  const Finished parameter = kiln({"ls", "NN=10"});
  EXPECT_EQ(parameter.status, 2);
  EXPECT_NE(parameter.err.find("did you mean 'N'"), std::string::npos) << parameter.err;
  const Finished order = kiln({"ls", "--sort", "sise"});
  EXPECT_EQ(order.status, 2);
  EXPECT_NE(order.err.find("did you mean 'size'"), std::string::npos) << order.err;
  EXPECT_EQ(kiln({"ls", "--arch", "sm_1"}).status, 2);
  EXPECT_EQ(kiln({"ls", "-n", "0"}).status, 2);
  EXPECT_EQ(kiln({"ls", "N"}).status, 2);
}

TEST_F(Ls, TheFooterCountsWhatIsShownAndAll) {
  fill_rows();
  const std::string out = kiln({"ls", "-t", "scale", "-n", "1"}).out;
  EXPECT_NE(out.find("1 entry of scale of the 4 that match, "), std::string::npos) << out;
  EXPECT_NE(out.find("(of 5 entries, "), std::string::npos) << out;
}

TEST_F(Ls, NarrowTerminalsLoseTheLeastImportantColumns) {
  fill_rows();
  for (const int columns : {40, 50, 60, 80, 120}) {
    const TerminalRun r = run_on_terminal(columns, {"ls"}, environment());
    EXPECT_EQ(r.status, 0);
    for (const std::string& line : visible_lines(r.screen))
      EXPECT_LE(line.size(), static_cast<std::size_t>(columns)) << line;
    EXPECT_EQ(r.screen.find("SIZE") != std::string::npos, columns >= 64) << r.screen;
    EXPECT_EQ(r.screen.find("ARCH") != std::string::npos, columns >= 52) << r.screen;
  }
  EXPECT_NE(run_on_terminal(40, {"ls", "--sort", "size"}, environment()).screen.find("SIZE"),
            std::string::npos)
      << "what is sorted by is always there";
}

TEST_F(Ls, AReadOnlyStoreIsListed) {
  fill_rows();
  ASSERT_EQ(::chmod(data_file().c_str(), 0400), 0);
  ASSERT_EQ(::chmod((cache() + "/v1").c_str(), 0500), 0);
  ASSERT_EQ(::chmod(cache().c_str(), 0500), 0);
  EXPECT_EQ(listed({"N=2"}), "20");
  ASSERT_EQ(::chmod(cache().c_str(), 0700), 0);
  ASSERT_EQ(::chmod((cache() + "/v1").c_str(), 0700), 0);
}

TEST_F(Ls, ADamagedHeadIsExitFourAndTheOthersAreListed) {
  fill_rows();
  std::string bytes = contents();
  const auto at = bytes.find("gone");
  ASSERT_NE(at, std::string::npos);
  bytes[at] ^= 1;
  overwrite(bytes);
  const Finished r = kiln({"ls", "--json"});
  EXPECT_EQ(r.status, 4);
  EXPECT_EQ(r.json()["count"], 4);
  EXPECT_EQ(r.json()["error"]["code"], "damaged");
}

TEST_F(Ls, AnEmptyCacheSaysWhatTheLayersHoldAndHowToListIt) {
  const std::string layer = fill_layer();
  const Finished r = kiln({"ls"}, {{"KILN_CACHE_LAYERS", layer}, {"COLUMNS", "1000"}});
  EXPECT_EQ(r.status, 0) << r.err;
  std::string said = r.out;
  std::replace(said.begin(), said.end(), '\n', ' ');
  EXPECT_NE(said.find("Nothing is cached in " + cache() + " yet."), std::string::npos) << said;
  EXPECT_NE(said.find("2 entries are in the layer " + layer + ": kiln ls --cache-dir " + layer + "."),
            std::string::npos)
      << said;
  EXPECT_EQ(kiln({"ls", "--cache-dir", layer, "--json"}).json()["count"], 2);
  EXPECT_EQ(kiln({"ls"}).out.find("layer"), std::string::npos);
}

TEST_F(Ls, ALayerOfRootIsListedByAnybody) {
  KILN_NEEDS_ROOT();
  const std::string layer = fill_layer(), home = path("theirs");
  ASSERT_EQ(::chmod(path("").c_str(), 0711), 0);
  testing::make(home, 0700, testing::kUser);
  EXPECT_EQ(testing::as_user(testing::kUser,
                             [&]() -> std::string {
                               Environment env = environment();
                               env["HOME"] = env["TMPDIR"] = home;
                               const Arguments list{"ls", "--cache-dir", layer, "--json"};
                               return Running(home, list, env).wait().json()["count"].dump();
                             }),
            "2");
}

using Show = Ls;

TEST_F(Show, FindsAnEntryOfALayer) {
  const Environment layers{{"KILN_CACHE_LAYERS", fill_layer()}};
  EXPECT_EQ(kiln({"show", "5", "--json"}, layers).json()["params"]["N"], "7") << "there is no cache";
  EXPECT_EQ(kiln({"diff", "1", "5", "--json"}, layers).json()["second"]["params"]["N"], "7");
  fill_rows();
  EXPECT_EQ(kiln({"show", "5", "--json"}, layers).json()["params"]["N"], "7");
  EXPECT_EQ(kiln({"show", "1", "--json"}, layers).status, 0) << "the same entry in both is one";
  EXPECT_EQ(kiln({"diff", "2100", "50", "--json"}, layers).json()["second"]["params"]["N"], "7");
  EXPECT_EQ(kiln({"show", "", "--json"}, layers).status, 2);
  EXPECT_EQ(kiln({"show", "5"}).status, 1) << "not without the layer";
}

TEST_F(Show, FindsAnEntryByAnyUniquePrefix) {
  fill_rows();
  EXPECT_EQ(kiln({"show", "1", "--json"}).json()["arch"], "sm_80");
  EXPECT_EQ(kiln({"show", "21", "--json"}).json()["params"]["N"], "10");
  const Finished ambiguous = kiln({"show", "2"});
  EXPECT_EQ(ambiguous.status, 2);
  EXPECT_NE(ambiguous.err.find("200000000000"), std::string::npos) << ambiguous.err;
  EXPECT_NE(ambiguous.err.find("210000000000"), std::string::npos) << ambiguous.err;
  EXPECT_EQ(kiln({"show", "5"}).status, 1);
  EXPECT_EQ(kiln({"show", "xyz"}).status, 2);
}

TEST_F(Show, SaysTheOccupancyAndWhichBlockItIsOf) {
  fill_rows();
  const auto json = kiln({"show", "20", "--json"}).json()["occupancy"];
  EXPECT_EQ(json["threads"], 256) << "the manifest's block";
  EXPECT_EQ(json["threads_from"], "manifest");
  EXPECT_EQ(json["blocks"], 8);
  EXPECT_EQ(json["most_warps"], 64);
  EXPECT_EQ(kiln({"show", "40", "--json"}).json()["occupancy"]["threads_from"], "most")
      << "its template is gone";
  EXPECT_NE(
      kiln({"show", "20"}).out.find("8 blocks an SM, 100 % of its warps (64 of 64), at 256 threads a block"),
      std::string::npos)
      << kiln({"show", "20"}).out;
}

TEST_F(Show, OnlyOneThingGoesToStdout) {
  fill_rows();
  EXPECT_EQ(kiln({"show", "20", "--sass", "--log"}).status, 2);
  EXPECT_EQ(kiln({"show", "20", "--ptx", "--image", "-"}).status, 2);
  EXPECT_EQ(kiln({"show", "20", "--json", "--log"}).status, 2);
  EXPECT_EQ(kiln({"show", "20", "--image", "-"}).out, std::string(3000, 'i'));
}

/// One specialisation by two toolchains. Only the second half of the key differs.
class TwoToolchains : public Ls {
 protected:
  void put_by(std::uint32_t toolchain, const std::string& nvrtc) const {
    compile::Facts f;
    f.unit = "scale", f.arch = "sm_90a", f.parameters = {{"N", "1"}, {"FLAG", "false"}};
    f.compiler_version = nvrtc;
    ASSERT_EQ(
        open()
            ->put({cache::test::key_of(0x50000000, toolchain), compile::encode(f),
                   "kiln-key 1:1\ntoolchain 1:1\nnvrtc " + std::to_string(nvrtc.size()) + ':' + nvrtc + '\n',
                   nvrtc})
            .put,
        cache::Put::stored);
  }
  void SetUp() override {
    fill_rows();
    put_by(0xb7430000, "12.9");
    put_by(0xb7e10000, "13.0");
  }
  std::string nvrtc_of(const Arguments& show) {
    Arguments all{"show", "--json"};
    all.insert(all.end(), show.begin(), show.end());
    const Finished r = kiln(all);
    return r.status == 0 ? r.json()["nvrtc"].get<std::string>() : "status " + std::to_string(r.status);
  }
  const std::string whole_ = cache::test::key_of(0x50000000, 0xb7430000).hex();
};

TEST_F(TwoToolchains, AreToldApartByWhatLsShowsAndThatIsAKeyEverywhere) {
  const std::string listed = kiln({"ls"}).out;
  for (const auto& [name, nvrtc] : {std::pair("500000000000-b743", "12.9"), {"500000000000-b7e1", "13.0"}}) {
    EXPECT_NE(listed.find(std::string(name) + "  scale"), std::string::npos) << listed;
    EXPECT_EQ(nvrtc_of({name}), nvrtc);
  }
  EXPECT_NE(listed.find("\n100000000000 "), std::string::npos) << "no more than is needed: " << listed;
  const auto json = kiln({"ls", "--json", "N=1", "--arch", "sm_90a"}).json();
  for (const auto& entry : json["entries"]) EXPECT_EQ(entry["key"].get<std::string>().size(), 64u);
  const Finished diff = kiln({"diff", "500000000000-b743", "5-b7e"});
  EXPECT_EQ(diff.status, 0) << diff.err;
  EXPECT_NE(diff.out.find("500000000000-b743"), std::string::npos) << diff.out;
  EXPECT_NE(diff.out.find("500000000000-b7e1"), std::string::npos) << diff.out;
  EXPECT_EQ(kiln({"diff", "5-b743", "5-b7e1", "--json"}).json()["second"]["nvrtc"], "13.0");
}

TEST_F(TwoToolchains, AreNamedByTheErrorThatFindsSeveral) {
  const Finished r = kiln({"show", "500000000000"});
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("500000000000-b743  scale N=1 FLAG=false sm_90a, by NVRTC 12.9"), std::string::npos)
      << r.err;
  EXPECT_NE(r.err.find("500000000000-b7e1  scale N=1 FLAG=false sm_90a, by NVRTC 13.0"), std::string::npos)
      << r.err;
}

TEST_F(TwoToolchains, AreFoundByDigitsOfBothHalvesAndByTheWholeKey) {
  EXPECT_EQ(nvrtc_of({whole_}), "12.9");
  EXPECT_EQ(nvrtc_of({whole_.substr(0, 35)}), "12.9") << "36 digits, as before";
  EXPECT_EQ(nvrtc_of({whole_.substr(0, 32) + "-b7e"}), "13.0");
  EXPECT_EQ(nvrtc_of({"5", "--toolchain", "b7e"}), "13.0");
  EXPECT_EQ(nvrtc_of({"5-b", "--toolchain", "b743"}), "12.9");
  EXPECT_EQ(nvrtc_of({"5-b743", "--toolchain", "b7e"}), "status 2") << "they contradict each other";
  EXPECT_EQ(nvrtc_of({"5", "--toolchain", "c"}), "status 1");
  EXPECT_EQ(nvrtc_of({"5", "--toolchain", "xyz"}), "status 2");
  EXPECT_EQ(nvrtc_of({"5", "--toolchain", "b7"}), "status 2") << "both";
  EXPECT_EQ(nvrtc_of({"5-xyz"}), "status 2");
  EXPECT_EQ(nvrtc_of({whole_.substr(0, 33) + "-b743"}), "status 2") << "a half has 32 digits";
}

TEST_F(TwoToolchains, AreOfferedByCompletion) {
  const std::string keys = kiln({"__complete", "show", "5"}).out;
  EXPECT_NE(keys.find("\n500000000000-b743\t"), std::string::npos) << keys;
  EXPECT_NE(keys.find("\n500000000000-b7e1\t"), std::string::npos) << keys;
  const std::string toolchains = kiln({"__complete", "show", "--toolchain", "b"}).out;
  EXPECT_NE(toolchains.find("\nb74300000000\tNVRTC 12.9\n"), std::string::npos) << toolchains;
  EXPECT_NE(toolchains.find("\nb7e100000000\tNVRTC 13.0\n"), std::string::npos) << toolchains;
}

TEST_F(TwoToolchains, AreToldApartInTheReport) {
  ASSERT_EQ(kiln({"report", path("page.html")}).status, 0);
  const std::string page = base::read_file(path("page.html"))->bytes;
  EXPECT_NE(page.find("500000000000-b743"), std::string::npos);
  EXPECT_NE(page.find("500000000000-b7e1"), std::string::npos);
}

class Ptx : public KilnCompiler {};

TEST_F(Ptx, IsMadeAgainWhileTheSourcesAreTheSame) {
  const std::string key = kiln({"compile", "scale", "N=1", "--json"}).json()["key"];
  const Finished same = kiln({"show", key, "--ptx"});
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_NE(same.out.find(".version"), std::string::npos);
  write("templates/scale.cu", base::read_file(path("templates/scale.cu"))->bytes + "// edited\n");
  const Finished edited = kiln({"show", key, "--ptx"});
  EXPECT_EQ(edited.status, 1);
  EXPECT_NE(edited.err.find("source has changed"), std::string::npos) << edited.err;
}

}  // namespace
}  // namespace kiln::test
