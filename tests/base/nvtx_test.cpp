// Ranges as a tool sees them. Each test runs in a new process, as NVTX looks for a tool once per process.
#include "base/nvtx.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <new>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "base/file.hpp"
#include "support/child.hpp"
#include "support/places.hpp"
#include "support/tree.hpp"

namespace kiln::base {
namespace {

std::string named(const char* name) { return std::string("kiln ") + name; }

class NvtxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!NvtxRange::is_built()) GTEST_SKIP() << "built without the nvtx3 headers";
    ::setenv("KILN_NVTX_FILE", tree_.at("calls").c_str(), 1);
  }
  void TearDown() override { ::unsetenv("NVTX_INJECTION64_PATH"); }
  static void attach(const char* tool = places::kNvtxTool) { ::setenv("NVTX_INJECTION64_PATH", tool, 1); }
  /// The calls that the tool saw, without thread ids.
  std::vector<std::string> calls() const {
    std::vector<std::string> out;
    const auto file = read_file(tree_.at("calls"));
    std::istringstream lines(file ? file->bytes : "");
    for (std::string line; std::getline(lines, line);) out.push_back(line.substr(line.find(' ') + 1));
    return out;
  }
  using Calls = std::vector<std::string>;
  testing::Tree tree_;
};

TEST_F(NvtxTest, RangesAreNestedInTheDomainKiln) {
  attach();
  EXPECT_EQ(testing::in_child([] {
              const NvtxRange outer([] { return named("get rms_norm T=bf16 H=4096"); });
              {
                const NvtxRange first([] { return named("disk"); });
              }
              const NvtxRange second([] { return named("compile"); });
              return 0;
            }),
            0);
  EXPECT_EQ(calls(),
            (Calls{"domain kiln", "push kiln get rms_norm T=bf16 H=4096 of kiln", "push kiln disk of kiln",
                   "pop of kiln", "push kiln compile of kiln", "pop of kiln", "pop of kiln"}));
}

TEST_F(NvtxTest, WithoutAToolNoNameIsMade) {
  for (const char* tool : {"", "/nonexistent/tool.so"}) {
    attach(tool);
    if (!*tool) ::unsetenv("NVTX_INJECTION64_PATH");
    EXPECT_EQ(testing::in_child([] {
                int made = 0;
                for (int i = 0; i < 3; ++i) const NvtxRange range([&] { return ++made, named("x"); });
                return made;
              }),
              0);
  }
  EXPECT_EQ(calls(), Calls{});
}

TEST_F(NvtxTest, EachThreadPopsItsOwn) {
  attach();
  EXPECT_EQ(testing::in_child([] {
              const NvtxRange asks([] { return named("first"); });
              std::vector<std::thread> threads;
              for (int t = 0; t < 4; ++t)
                threads.emplace_back([] {
                  for (int i = 0; i < 10; ++i) const NvtxRange range([] { return named("a"); });
                });
              for (std::thread& t : threads) t.join();
              return 0;
            }),
            0);
  const auto file = read_file(tree_.at("calls"));
  ASSERT_TRUE(file);
  std::map<std::string, int> open;
  std::istringstream lines(file->bytes);
  int pushes = 0;
  for (std::string line; std::getline(lines, line);) {
    int& depth = open[line.substr(0, line.find(' '))];
    if (line.find(" push ") != std::string::npos) ++depth, ++pushes;
    if (line.find(" pop ") != std::string::npos) --depth;
    EXPECT_GE(depth, 0) << line;
  }
  EXPECT_EQ(pushes, 41);
  EXPECT_EQ(open.size(), 5u);
  for (const auto& [thread, depth] : open) EXPECT_EQ(depth, 0) << thread;
}

TEST_F(NvtxTest, ANameThatThrowsGivesNoRange) {
  attach();
  EXPECT_EQ(testing::in_child([] {
              const NvtxRange range([]() -> std::string { throw std::bad_alloc(); });
              return 0;
            }),
            0);
  EXPECT_EQ(calls(), Calls{"domain kiln"});
}

TEST_F(NvtxTest, AForkedChildOfAProcessWithAToolMakesAndEndsNone) {
  attach();
  EXPECT_EQ(testing::in_child([] {
              std::optional<NvtxRange> parents;
              parents.emplace([] { return named("parent"); });
              const int child = testing::in_child([&] {
                const NvtxRange own([] { return named("child"); });
                parents.reset();
                return 0;
              });
              return child;
            }),
            0);
  EXPECT_EQ(calls(), (Calls{"domain kiln", "push kiln parent of kiln", "pop of kiln"}));
}

}  // namespace
}  // namespace kiln::base
