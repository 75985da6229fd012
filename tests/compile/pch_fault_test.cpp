// Faults of precompiled headers: they never make a compile fail, and no file is left over.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <fstream>
#include <map>
#include <thread>

#include "compile/pch_fixture.hpp"
#include "support/nightly.hpp"

namespace kiln::testing {
namespace {

/// This process's descriptors of unlinked precompiled headers.
std::vector<int> held_files() {
  std::vector<int> out;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (fs::read_symlink(entry.path(), gone).string().find("header.pch (deleted)") != std::string::npos)
      out.push_back(std::stoi(entry.path().filename()));
  }
  return out;
}

TEST_F(PrecompiledHeaderTest, AFileDamagedBetweenUsesIsNotUsed) {
  write_unit("#include \"a.h\"\n");
  tree_.write("t/a.h", "#define VALUE 1\n");
  for (const bool shortened : {false, true}) {
    PrecompiledHeaders headers(eager());
    expect_same_in_both(headers, 1, 3, "before");
    ASSERT_EQ(headers.counts().used, 2u);
    ASSERT_EQ(held_files().size(), 1u);
    const base::Fd file(::open(("/proc/self/fd/" + std::to_string(held_files()[0])).c_str(), O_RDWR));
    ASSERT_TRUE(file);
    if (shortened)
      ASSERT_EQ(::ftruncate(file.get(), 5000), 0);
    else
      ASSERT_EQ(::pwrite(file.get(), std::string(4096, 'x').data(), 4096, 1 << 16), 4096);
    expect_same_in_both(headers, 1, 3, "after");
    EXPECT_EQ(headers.counts().used, 2u);
    EXPECT_EQ(headers.counts().off, 1u);
    EXPECT_EQ(headers.counts().held, 0u);
  }
}

TEST_F(PrecompiledHeaderTest, AFileThatWasBadFromTheStartHurtsNobody) {
  write_unit("#include \"a.h\"\n");
  tree_.write("t/a.h", "#define VALUE 1\n");
  using Harm = std::function<void(const std::string&)>;
  const std::map<std::string, Harm> harms{
      {"deleted", [](const std::string& file) { fs::remove(file); }},
      {"empty", [](const std::string& file) { fs::resize_file(file, 0); }},
      {"cut in its head", [](const std::string& file) { fs::resize_file(file, 100); }},
      {"cut in its heap",
       [](const std::string& file) { fs::resize_file(file, fs::file_size(file) - (64 << 10)); }},
      {"no header", [](const std::string& file) { std::ofstream(file) << std::string(1 << 20, 'x'); }},
      {"zeros in its heap", [](const std::string& file) {
         std::fstream(file, std::ios::in | std::ios::out).seekp(fs::file_size(file) - (256 << 10))
             << std::string(200 << 10, '\0');
       }}};
  for (const auto& [what, harm] : harms) {
    HeaderSettings settings = eager();
    settings.on_created = harm;
    PrecompiledHeaders headers(settings);
    expect_same_in_both(headers, 1, 4, what);
    EXPECT_TRUE(headers.counts().used == 0 || what == "zeros in its heap") << what;
  }
}

TEST_F(PrecompiledHeaderTest, AWrongOneIsFoundOutBeforeItIsUsed) {
  write_unit("#include \"a.h\"\n");
  const std::string keep = tree_.at("kept.pch");
  tree_.write("t/a.h", "#define VALUE 1\n");
  HeaderSettings settings = eager();
  settings.on_created = [&](const std::string& file) { fs::copy_file(file, keep); };
  PrecompiledHeaders first(settings);
  compile_in(a_, made(1), &first);
  ASSERT_TRUE(fs::exists(keep));

  tree_.write("t/a.h", "#define VALUE 2\n");
  settings.on_created = [&](const std::string& file) {
    fs::copy_file(keep, file, fs::copy_options::overwrite_existing);
  };
  std::vector<std::string> warnings;
  base::set_log_sink([&](base::Level level, std::string_view line) {
    if (level == base::Level::warning) warnings.emplace_back(line);
  });
  PrecompiledHeaders headers(settings);
  expect_same_in_both(headers, 1, 4, "planted");
  base::set_log_sink({});
  EXPECT_EQ(headers.counts().created, 1u);
  EXPECT_EQ(headers.counts().used, 0u);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("without precompiled headers"), std::string::npos) << warnings[0];
  tree_.write("t/a.h", "#define VALUE 3\n");
  expect_same_in_both(headers, 1, 3, "off for every name");
  EXPECT_EQ(headers.counts().created, 1u);
}

TEST_F(PrecompiledHeaderTest, AHeapThatIsTooSmallIsDoneWithout) {
  KILN_NIGHTLY_ONLY();
  if (ask_.toolkit.include_dirs.empty()) GTEST_SKIP() << "no toolkit headers on this machine";
  write_unit("#include <cuda/std/type_traits>\n", "out[i] = T(N);");
  HeaderSettings settings = eager();
  settings.heap_bytes = 4 << 20;
  PrecompiledHeaders headers(settings);
  expect_same_in_both(headers, 1, 2, "4 MiB");
  EXPECT_EQ(headers.counts().created, 0u);
  EXPECT_EQ(headers.counts().off, 1u);
}

TEST_F(PrecompiledHeaderTest, OneCreatesAndOneProvesHoweverManyAsk) {
  write_unit("#include \"a.h\"\n");
  tree_.write("t/a.h", "#define VALUE 1\n");
  WorkerPool pool({.executable = kWorker, .jobs = 3});
  PrecompiledHeaders headers(eager());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    std::vector<MadeUnit> units;
    for (int n = 0; n < 6; ++n) units.push_back(made(1 + 6 * t + n));
    threads.emplace_back([&, units = std::move(units)] {
      for (const MadeUnit& m : units) EXPECT_NO_THROW(compile_in(pool, m, &headers));
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(headers.counts().created, 1u);
  EXPECT_GE(headers.counts().used, 1u);
  EXPECT_EQ(headers.counts().off, 0u);
  expect_same_in_both(headers, 30, 2, "afterwards");
}

TEST_F(PrecompiledHeaderTest, WhatIsHeldIsBounded) {
  write_unit("#include \"a.h\"\n");
  HeaderSettings settings = eager();
  settings.max_count = 2;
  PrecompiledHeaders headers(settings);
  for (int value = 1; value <= 4; ++value) {
    tree_.write("t/a.h", "#define VALUE " + std::to_string(value) + "\n");
    expect_same_in_both(headers, 1, 2, "count");
    EXPECT_LE(headers.counts().held, 2u);
    EXPECT_EQ(held_files().size(), headers.counts().held);
  }
  EXPECT_EQ(headers.counts().evicted, 2u);
  headers.drop_idle(std::chrono::seconds(0));
  EXPECT_EQ(headers.counts().held_bytes, 0u);
  EXPECT_TRUE(held_files().empty());

  settings.max_bytes = 1;
  PrecompiledHeaders none(settings);
  expect_same_in_both(none, 1, 3, "bytes");
  EXPECT_EQ(none.counts().held, 0u);
}

TEST_F(PrecompiledHeaderTest, AForkedChildHasNoneOfItsParents) {
  write_unit("#include \"a.h\"\n");
  tree_.write("t/a.h", "#define VALUE 1\n");
  PrecompiledHeaders headers(eager());
  expect_same_in_both(headers, 1, 2, "parent");
  ASSERT_EQ(held_files().size(), 1u);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(held_files().empty() && headers.counts().created == 0 ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  expect_same_in_both(headers, 3, 2, "the parent goes on");
  EXPECT_EQ(headers.counts().used, 3u);
}

TEST_F(PrecompiledHeaderTest, AKilledHostLeavesNothingBehind) {
  write_unit("#include \"a.h\"\n");
  tree_.write("t/a.h", "#define VALUE 1\n");
  fs::create_directories(tree_.at("tmp"));
  const pid_t host = ::fork();
  if (host == 0) {
    ::setenv("TMPDIR", tree_.at("tmp").c_str(), 1);
    WorkerPool pool({.executable = kWorker, .jobs = 1});
    PrecompiledHeaders headers(eager());
    for (int n = 1; n <= 3; ++n) compile_in(pool, made(n), &headers);
    if (headers.counts().used != 2) ::_exit(1);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(host, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status)) << "the host did not get that far";
  for (int tenths = 0; tenths < 100 && !fs::is_empty(tree_.at("tmp")); ++tenths)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(fs::is_empty(tree_.at("tmp")));
}

}  // namespace
}  // namespace kiln::testing
