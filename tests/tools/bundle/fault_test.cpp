// Faults of imports and exports: a full disk, a kill, a Ctrl-C, a place
// that is not writable, another user's symlink.
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "cache/place/directory.hpp"
#include "support/places.hpp"
#include "tests/support/nightly.hpp"
#include "tests/support/other_user.hpp"
#include "tests/support/sanitized.hpp"
#include "tools/bundle/fixture.hpp"

using namespace kiln;
using namespace kiln::test;
using namespace kiln::testing;

namespace {

struct BundleFaults : BundleCommand {
  Environment fault(const std::string& rules) const {
    return {{"LD_PRELOAD", places::kFaultLibrary}, {"FAULT_RULES", rules}};
  }
  /// Writes the bundle a.kb with entries 0 to count - 1.
  void make_bundle(std::uint32_t count) {
    std::vector<cache::Record> entries;
    for (std::uint32_t number = 0; number < count; ++number) entries.push_back(Made(number).record());
    write_bundle("a.kb", entries);
  }
  template <class Condition>
  bool eventually(Condition&& holds) const {
    return base::poll_until(cache::test::soon(), holds);
  }
};

}  // namespace

TEST_F(BundleFaults, AFullDiskIsNamedAndLeavesAWholeCache) {
  make_bundle(600);
  const Finished done = kiln({"bundle", "import", path("a.kb"), "--json"}, fault("data@data.mdb:4+:ENOSPC"));
  EXPECT_EQ(done.status, 1) << done.err;
  EXPECT_NE(done.err.find("could not be stored"), std::string::npos) << done.err;
  EXPECT_LT(done.json()["stored"], 600);
  EXPECT_EQ(kiln({"verify"}).status, 0);
  const auto again = import(path("a.kb"), cache()).json();
  EXPECT_EQ(again["stored"].get<int>() + again["present"].get<int>(), 600);
}

TEST_F(BundleFaults, AKillInTheMiddleLeavesWholeEntriesAndTheNextImportGoesOn) {
  make_bundle(600);
  for (const int sync : {1, 2, 3}) {
    const std::string directory = path("killed" + std::to_string(sync));
    const Finished killed = kiln({"bundle", "import", path("a.kb"), "--cache-dir", directory},
                                 fault("sync:" + std::to_string(sync) + ":kill"));
    EXPECT_EQ(killed.status, 128 + SIGKILL);
    if (exists(directory + "/v1/data.mdb")) {
      EXPECT_EQ(kiln({"verify", "--cache-dir", directory}).status, 0);
    }
    const auto again = import(path("a.kb"), directory).json();
    EXPECT_EQ(again["stored"].get<int>() + again["present"].get<int>(), 600);
    EXPECT_EQ(entries_in(directory), 600u);
  }
}

TEST_F(BundleFaults, CtrlCFinishesWhatItHasAndSaysSo) {
  make_bundle(50);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const base::Fd both(::open(path("pipe").c_str(), O_RDWR | O_CLOEXEC));
  const std::string bytes = bytes_of("a.kb");
  ASSERT_LT(bytes.size() / 2, 60'000u) << "fits a pipe";
  ASSERT_EQ(::write(both.get(), bytes.data(), bytes.size() / 2), static_cast<ssize_t>(bytes.size() / 2));
  const auto running = start({"bundle", "import", path("pipe"), "--json"});
  // The command has opened its store, and waits for the rest of the bundle.
  ASSERT_TRUE(eventually([&] { return exists(data_file()); }));
  running->send(SIGINT);
  const Finished done = running->wait();
  EXPECT_EQ(done.status, 130);
  EXPECT_EQ(done.json()["interrupted"], true);
  EXPECT_EQ(done.json()["complete"], false);
  EXPECT_EQ(done.json()["stored"], entries_in(cache()));
  EXPECT_EQ(import(path("a.kb"), cache()).status, 0);
  EXPECT_EQ(entries_in(cache()), 50u);
}

TEST_F(BundleFaults, APlaceThatCannotBeWrittenIsNotSteppedDownFrom) {
  make_bundle(2);
  write("file", "in the way");
  const Finished done = import(path("a.kb"), path("file"));
  EXPECT_EQ(done.status, 1);
  EXPECT_NE(done.err.find("the cache cannot be written"), std::string::npos) << done.err;
  for (const auto& entry : std::filesystem::directory_iterator(path("")))
    EXPECT_FALSE(entry.path().filename().string().starts_with("kiln-")) << entry;
}

TEST_F(BundleFaults, AReadOnlyCacheOfAnotherUserIsExportedAndNotImportedInto) {
  KILN_NEEDS_ROOT();
  make_bundle(2);
  put(0, 1);
  ASSERT_EQ(::chmod(path("").c_str(), 0711), 0);
  ASSERT_EQ(::chmod(path("a.kb").c_str(), 0644), 0);
  cache::share_layer(cache());
  make(path("theirs"), 0700, kUser);
  const std::string said = as_user(kUser, [&] {
    Environment env = environment();
    env["HOME"] = env["TMPDIR"] = path("theirs");
    const Finished exported =
        Running(path("theirs"), {"bundle", "export", path("theirs/b.kb"), "--all", "--json"}, env).wait();
    const Finished imported = Running(path("theirs"), {"bundle", "import", path("a.kb")}, env).wait();
    return std::to_string(exported.status) + ' ' + std::to_string(imported.status) + ' ' + exported.err;
  });
  EXPECT_EQ(said.substr(0, 3), "0 1") << said;
}

TEST_F(BundleFaults, AFailedExportLeavesTheFormerFile) {
  put(0, 3);
  write("a.kb", "former");
  const Finished done = kiln({"bundle", "export", path("a.kb"), "--all"}, fault("fsync:1+:EIO"));
  EXPECT_EQ(done.status, 1) << done.err;
  EXPECT_EQ(bytes_of("a.kb"), "former");
  for (const auto& entry : std::filesystem::directory_iterator(path("")))
    EXPECT_EQ(entry.path().filename().string().find("a.kb."), std::string::npos) << entry;
}

TEST_F(BundleFaults, SomebodyElsesSymlinkIsNotFollowed) {
  KILN_NEEDS_ROOT();
  put(0, 1);
  write("victim", "precious");
  std::filesystem::create_symlink(path("victim"), path("a.kb"));
  ASSERT_EQ(::lchown(path("a.kb").c_str(), kStranger, kStranger), 0);
  EXPECT_EQ(kiln({"bundle", "export", path("a.kb"), "--all"}).status, 1);
  EXPECT_EQ(bytes_of("victim"), "precious");
}

TEST_F(BundleFaults, MemoryIsThatOfABatchWhateverTheBundleHolds) {
  KILN_NIGHTLY_ONLY();
  KILN_SKIP_SANITIZED("memory");
  constexpr std::uint32_t kEntries = 10'000;
  {
    const auto store = open();
    std::vector<cache::Record> records;
    for (std::uint32_t number = 0; number < kEntries; ++number) {
      cache::Record record = Made(number).record();
      std::uint32_t state = number;
      for (int i = 0; i < 16'000; ++i)
        record.image += static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
      records.push_back(std::move(record));
      if (records.size() < 500) continue;
      std::sort(records.begin(), records.end(), [](auto& a, auto& b) { return a.key < b.key; });
      for (const cache::PutResult& put : store->put_many(records)) ASSERT_EQ(put.put, cache::Put::stored);
      records.clear();
    }
  }
  const Finished exported = kiln({"bundle", "export", path("a.kb"), "--all", "--json"});
  ASSERT_EQ(exported.json()["entries"], kEntries);
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  const long export_mib = usage.ru_maxrss >> 10;
  ASSERT_EQ(import(path("a.kb"), path("other")).json()["stored"], kEntries);
  ::getrusage(RUSAGE_CHILDREN, &usage);
  const auto content_mib = exported.json()["content_bytes"].get<std::uint64_t>() >> 20;
  std::printf("FIGURES %u entries, %lu MiB: export at most %ld MiB, both at most %ld MiB\n", kEntries,
              static_cast<unsigned long>(content_mib), export_mib, usage.ru_maxrss >> 10);
  EXPECT_GT(content_mib, 150u);
  EXPECT_LT(usage.ru_maxrss >> 10, 128) << "MiB";
}
