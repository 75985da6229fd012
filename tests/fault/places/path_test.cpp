// The whole path under faults, through `kiln compile`. The kernel is served with at most one warning,
// and the store is usable afterwards. After a kill at any system call, the next process is served
// within its own compile time and a second.
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "base/deadline.hpp"
#include "support/nightly.hpp"
#include "support/places.hpp"
#include "support/time_limit.hpp"
#include "tests/fault/store/fixture.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

namespace fs = std::filesystem;
using cache::test::configured;
using cache::test::kSanitized;
using cache::test::report;

class PathFault : public KilnCompiler {
 protected:
  void SetUp() override {
    KilnCompiler::SetUp();
    if (IsSkipped()) return;
    // Prepares a seed store with N=1, and the expected image of N=3.
    ASSERT_EQ(kiln({"compile", "scale", "N=1"}).status, 0);
    fs::copy(store(), path("seed"));
    ASSERT_EQ(kiln({"compile", "scale", "N=3", "-o", path("expected")}).status, 0);
    restore();
  }
  /// Removes the lock files of every store below the scratch directory, including a fallback store's.
  void TearDown() override {
    for (const auto& place : fs::recursive_directory_iterator(fs::path(cache()).parent_path())) {
      struct stat st {};
      if (place.path().filename() != "v1" || ::stat(place.path().c_str(), &st) != 0) continue;
      const std::string name = "kiln-" + std::to_string(::getuid()) + '-' + std::to_string(st.st_dev) + '-' +
                               std::to_string(st.st_ino) + '.';
      for (const auto& entry : fs::directory_iterator("/dev/shm"))
        if (entry.path().filename().string().starts_with(name)) fs::remove(entry.path());
    }
  }

  std::string store() const { return cache() + "/v1"; }
  /// Restores the store's files, in the same directory.
  void restore() const {
    for (const auto& entry : fs::directory_iterator(store())) fs::remove_all(entry.path());
    fs::copy(path("seed"), store(), fs::copy_options::recursive);
  }

  Finished compile(const std::string& rules, const std::string& number = "N=3") {
    Environment more{{"FAULT_RULES", rules},
                     {"LD_PRELOAD", std::string(places::kBuildDirectory) + "/tests/libkiln_fault.so"}};
    if (kSanitized) more["ASAN_OPTIONS"] = "verify_asan_link_order=0";
    fs::remove(path("image"));
    return kiln({"compile", "scale", number, "--json", "-o", path("image")}, more);
  }
  /// Returns true when the image is byte for byte the expected one.
  bool right_image() const {
    const auto expected = base::read_file(path("expected")), got = base::read_file(path("image"));
    return expected && got && got->bytes == expected->bytes;
  }
  static std::size_t warnings(const std::string& text) {
    std::size_t out = 0;
    for (std::size_t at = 0; (at = text.find("warning", at)) != std::string::npos; ++at) ++out;
    return out;
  }
  /// Without faults: the old record is still there, and a new one is kept.
  void expect_usable() {
    EXPECT_EQ(compile("", "N=1").json()["outcome"], "disk") << "cached before, and lost";
    EXPECT_EQ(compile("").status, 0);
    EXPECT_EQ(compile("").json()["outcome"], "disk");
    EXPECT_TRUE(right_image());
  }
  void expect_served(const Finished& finished) {
    EXPECT_EQ(finished.status, 0) << finished.err;
    EXPECT_EQ(finished.json()["outcome"], "compiled");
    EXPECT_TRUE(right_image());
    EXPECT_EQ(warnings(finished.err), 1u) << finished.err;
  }

  /// Kills `kiln compile` at each of its system calls in turn.
  void kill_at_each_step(const char* fault, const char* action) {
    const auto begin = base::Clock::now();
    ASSERT_EQ(compile("").status, 0);
    const auto own_time = base::Clock::now() - begin;
    std::uint64_t killed = 0, wrong = 0, lost = 0, recompiled = 0;
    base::Clock::duration slowest{};
    for (int step = 1; step < 1000; step += ci_or_night(2, 1)) {
      restore();
      const Finished died = compile("any:" + std::to_string(step) + ':' + action);
      if (died.status == 0) break;
      ASSERT_EQ(died.status, 128 + SIGKILL) << died.err;
      ++killed;
      const auto asked = base::Clock::now();
      const Finished next = compile("");
      slowest = std::max(slowest, base::Clock::now() - asked);
      EXPECT_EQ(next.status, 0) << next.err;
      EXPECT_EQ(warnings(next.err), 0u) << next.err;
      if (!right_image()) ++wrong;
      if (next.json()["outcome"] == "compiled") ++recompiled;
      if (compile("", "N=1").json()["outcome"] != "disk") ++lost;
    }
    const auto ms = [](auto d) {
      return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(d).count());
    };
    report(fault, {{"killed", killed},
                   {"compiled again", recompiled},
                   {"own time (ms)", ms(own_time)},
                   {"slowest next caller (ms)", ms(slowest)},
                   {"lost", lost},
                   {"wrong", wrong}});
    EXPECT_GT(killed, 15u / static_cast<unsigned>(ci_or_night(2, 1)));
    EXPECT_GT(recompiled, 0u);
    EXPECT_LT(recompiled, killed) << "some step lies behind the commit";
    EXPECT_EQ(lost, 0u);
    EXPECT_EQ(wrong, 0u);
    // The compile's own time and a second, and nine more for a busy machine. Waiting for a lock that no
    // process holds any more would take far longer.
    EXPECT_LT(slowest, at_most(own_time + std::chrono::seconds(10)));
  }
};

TEST_F(PathFault, KilledBeforeEachCallTheNextCallerIsServed) {
  kill_at_each_step("kiln compile killed before each call", "kill");
}

TEST_F(PathFault, KilledAfterEachCallTheNextCallerIsServed) {
  kill_at_each_step("kiln compile killed after each call", "kill-after");
}

class FaultyDisk : public PathFault, public ::testing::WithParamInterface<const char*> {};

TEST_P(FaultyDisk, ServesTheKernelWithOneWarningAndIsUsableAfterwards) {
  expect_served(compile(GetParam()));
  expect_usable();
}

INSTANTIATE_TEST_SUITE_P(Path, FaultyDisk,
                         ::testing::Values("data@data.mdb:1+:EIO", "data@data.mdb:1:short",
                                           "data@data.mdb:1+:ENOSPC", "data@data.mdb:1+:EDQUOT",
                                           "sync@data.mdb:1+:EIO", "meta@data.mdb:1+:EIO",
                                           "meta@data.mdb:1:after=EIO"));

TEST_F(PathFault, ServesTheKernelWithoutAnAddressSpaceForTheMap) {
  EXPECT_EQ(compile("mmap@data.mdb:1+:ENOMEM").status, 0);
  EXPECT_TRUE(right_image());
  expect_usable();
}

TEST_F(PathFault, ServesTheKernelUnderAFileSizeLimit) {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = fs::file_size(store() + "/data.mdb");  // an image file is smaller than this
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Finished finished = compile("");
  ::setrlimit(RLIMIT_FSIZE, &before);
  expect_served(finished);
  expect_usable();
}

}  // namespace
}  // namespace kiln::test
