// kiln prewarm of a plan for which the cache has no room.
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "support/places.hpp"
#include "tools/terminal.hpp"

namespace kiln::test {
namespace {

using namespace std::chrono_literals;

/// The image of `large` is a little more than 1 MiB. Under the
/// smallest cap three of them fit, and six do not.
class PrewarmRoom : public KilnCompiler {
 protected:
  PrewarmRoom() {
    write("templates/large.toml",
          "format = 1\n[template]\nname = \"large\"\nsource = \"large.cu\"\ninstantiate = \"large<{N}>\"\n"
          "[param.N]\nkind = \"int\"\nrange = [1, 99]\n"
          "[[arg]]\nname = \"x\"\ntype = \"ptr<i32>\"\naccess = \"write\"\nshape = [\"1\"]\n"
          "[launch]\ngrid = [\"1\"]\nblock = [\"1\"]\n");
    write("templates/large.cu",
          "__device__ int table[1 << 18] = {1};\n"
          "template <int N> __global__ void large(int* x) { *x = table[N] + N; }\n");
    write("six.toml", "[[prewarm]]\ntemplate = \"large\"\nN = [1, 2, 3, 4, 5, 6]\n");
    write("two.toml", "[[prewarm]]\ntemplate = \"large\"\nN = [1, 2]\n");
  }
  std::string six() const { return path("six.toml"); }
  std::string two() const { return path("two.toml"); }
  static Environment cap(const std::string& size) { return {{"KILN_CACHE_MAX_SIZE", size}}; }
  static std::size_t covered(const nlohmann::json& run) {
    std::size_t count = 0;
    for (const auto& entry : run["entries"]) count += entry["covered"].get<bool>();
    return count;
  }
  /// For example the "9M" of "KILN_CACHE_MAX_SIZE=9M".
  static std::string cap_named_in(const std::string& text) {
    const std::string name = "KILN_CACHE_MAX_SIZE=";
    const auto at = text.find(name);
    return at == std::string::npos
               ? ""
               : text.substr(at + name.size(), text.find('M', at + name.size()) + 1 - at - name.size());
  }
};

TEST_F(PrewarmRoom, APlanLargerThanTheCapIsPartlyDoneAndNamesACapThatHoldsIt) {
  const Finished small = kiln({"prewarm", six(), "--json"}, cap("4M"));
  EXPECT_EQ(small.status, 3) << small.err;
  const auto json = small.json();
  EXPECT_EQ(json["compiled"], 6);
  const auto evicted = json["evicted"].get<std::size_t>();
  EXPECT_GE(evicted, 3u);
  EXPECT_EQ(covered(json), 6 - evicted);
  EXPECT_EQ(kiln({"ls", "--json"}).json()["count"], 6 - evicted);
  EXPECT_EQ(kiln({"prewarm", six(), "--check", "--json"}, cap("4M")).json()["missing"], evicted);
  EXPECT_EQ(json["room"]["cap_bytes"], 4 << 20);
  EXPECT_GE(json["room"]["evicted_bytes"], evicted << 20);
  EXPECT_NE(small.err.find(std::to_string(evicted) + " specialisations were evicted again"),
            std::string::npos)
      << small.err;
  const std::string enough = cap_named_in(small.err);
  ASSERT_NE(enough, "") << small.err;
  EXPECT_LE(std::stoi(enough), 12) << "six images of 1 MiB";

  const Finished large = kiln({"prewarm", six(), "--json"}, cap(enough));
  EXPECT_EQ(large.status, 0) << large.err;
  EXPECT_EQ(large.err.find("kiln: "), std::string::npos) << large.err;
  EXPECT_EQ(large.json()["evicted"], 0);
  EXPECT_FALSE(large.json().contains("room"));
  EXPECT_EQ(covered(large.json()), 6u);
  EXPECT_EQ(kiln({"prewarm", six(), "--check"}, cap(enough)).status, 0);
}

TEST_F(PrewarmRoom, TheSummaryCountsWhatWasEvicted) {
  const Finished r = kiln({"prewarm", six()}, cap("4M"));
  EXPECT_EQ(r.status, 3);
  EXPECT_NE(r.out.find(" evicted again; "), std::string::npos) << r.out;
  EXPECT_EQ(r.err.rfind("kiln: error: ", 0), 0u) << "of an empty cache nothing is known before: " << r.err;
}

TEST_F(PrewarmRoom, KnownSizesAreComparedWithTheCapBeforeAnythingIsCompiled) {
  EXPECT_EQ(kiln({"prewarm", two()}, cap("4M")).status, 0);
  Environment small = environment();
  small["KILN_CACHE_MAX_SIZE"] = "4M";
  const TerminalRun r = run_on_terminal(200, {"prewarm", six()}, small);
  EXPECT_EQ(r.status, 3);
  const auto warned = r.screen.find("the plan takes about 6."), began = r.screen.find("/6");
  ASSERT_NE(warned, std::string::npos) << r.screen;
  ASSERT_NE(began, std::string::npos) << r.screen;
  EXPECT_LT(warned, began);
  EXPECT_NE(cap_named_in(r.screen.substr(warned)), "") << r.screen;
}

TEST_F(PrewarmRoom, WhatALayerHasNeedsNoRoom) {
  const Finished layer = kiln({"prewarm", six(), "--layer", path("layer"), "--json"}, cap("4M"));
  EXPECT_EQ(layer.status, 0) << layer.err << "a layer has no cap";
  EXPECT_EQ(layer.json()["evicted"], 0);
  Environment layered = cap("4M");
  EXPECT_EQ(kiln({"prewarm", two()}, layered).status, 0);
  layered["KILN_CACHE_LAYERS"] = path("layer");
  const Finished r = kiln({"prewarm", six(), "--json"}, layered);
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.err.find("kiln: "), std::string::npos) << r.err;
  EXPECT_EQ(covered(r.json()), 6u);
}

/// The worker waits for a file, so that the cache is emptied in the middle of the run.
TEST_F(PrewarmRoom, WhatAnotherProcessTookAwayMeanwhileCounts) {
  write("one.toml", "[[prewarm]]\ntemplate = \"large\"\nN = 1\n");
  EXPECT_EQ(kiln({"prewarm", path("one.toml")}).status, 0);
  write("worker.sh", "#!/bin/sh\nwhile [ ! -e " + path("go") + " ]; do sleep 0.02; done\nexec " +
                         std::string(places::kCommand) + "-worker \"$@\"\n");
  ::chmod(path("worker.sh").c_str(), 0700);
  const auto running = start({"prewarm", two(), "-j1"}, {{"KILN_WORKER", path("worker.sh")}});
  const auto limit = std::chrono::steady_clock::now() + 120s;
  while (running->out().find("[1/2] disk") == std::string::npos && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(2ms);
  EXPECT_EQ(kiln({"clear", "--yes"}).status, 0);
  write("go", "");
  const Finished r = running->wait();
  EXPECT_EQ(r.status, 3) << r.out;
  EXPECT_NE(r.err.find("1 specialisation was evicted again"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("another process removed"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace kiln::test
