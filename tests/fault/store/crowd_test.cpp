// Two hundred processes or threads at once, forks before and after use, and several
// spellings of one path. Results must be right.
#include <filesystem>
#include <thread>

#include "support/nightly.hpp"
#include "tests/fault/store/fixture.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kCrowd = 200, kSharedKeys = 20;
constexpr std::size_t kCrowdSize = 20'000;

struct Board {
  std::atomic<std::uint32_t> ready;
  std::atomic<std::uint64_t> stored, present, skipped, reads, wrong, lost;
};

class Crowd : public StoreFixture {
 protected:
  Crowd() { put_wait_ = 60s; }

  void put(Store& store, std::uint32_t number) {
    const Put put = store.put(record_of(number, kCrowdSize)).put;
    ++(put == Put::stored ? board_->stored : put == Put::present ? board_->present : board_->skipped);
  }
  void read(Store& store, std::uint32_t number, bool must) {
    const Record expected = record_of(number, kCrowdSize);
    const auto got = store.get(key_of(number), expected.key_text, soon());
    ++board_->reads;
    if (got.record ? !same(*got.record, expected) : got.miss != Miss::absent) ++board_->wrong;
    if (must && !got.record) ++board_->lost;
  }
  /// The part of each member of a crowd: it puts a key that ten members put at once, and reads other keys.
  void take_part(Store& store, std::uint32_t number, std::uint32_t count) {
    ++board_->ready;
    base::poll_until(soon(), [&] { return board_->ready >= count; });
    put(store, number % kSharedKeys);
    read(store, number % kSharedKeys, true);
    for (std::uint32_t other = 0; other < kSharedKeys; ++other) read(store, other, false);
  }
  void check(const char* fault, std::uint64_t keys) {
    const auto store = open();
    for (std::uint32_t number = 0; number < keys; ++number) read(*store, number, true);
    report(fault, {{"stored", board_->stored},
                   {"present", board_->present},
                   {"skipped", board_->skipped},
                   {"reads", board_->reads},
                   {"lost", board_->lost},
                   {"wrong", board_->wrong}});
    EXPECT_EQ(board_->stored, keys);
    EXPECT_EQ(board_->skipped, 0u);
    EXPECT_EQ(board_->wrong, 0u);
    EXPECT_EQ(board_->lost, 0u);
    EXPECT_EQ(store->stats().entries, keys);
  }

  Shared<Board> board_;
};

TEST_F(Crowd, TwoHundredThreadsOfOneStore) {
  KILN_NIGHTLY_ONLY();
  const auto store = open();
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kCrowd; ++i) threads.emplace_back([&, i] { take_part(*store, i, kCrowd); });
  for (auto& thread : threads) thread.join();
  check("200 threads", kSharedKeys);
}

TEST_F(Crowd, TwoHundredProcesses) {
  KILN_NIGHTLY_ONLY();
  std::vector<pid_t> processes;
  for (std::uint32_t i = 0; i < kCrowd; ++i) {
    processes.push_back(::fork());
    if (processes.back() != 0) continue;
    ::alarm(300);
    {
      const auto store = open();  // the first processes create the file at the same time
      take_part(*store, i, kCrowd);
    }
    ::_exit(0);
  }
  for (const pid_t pid : processes) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  check("200 processes", kSharedKeys);
}

TEST_F(Crowd, ForkedBeforeTheStoreWasUsed) {
  const auto store = open();
  std::vector<pid_t> processes;
  for (std::uint32_t i = 0; i < kSharedKeys; ++i) {
    processes.push_back(::fork());
    if (processes.back() != 0) continue;
    ::alarm(300);
    take_part(*store, i, kSharedKeys + 1);
    ::_exit(0);
  }
  take_part(*store, 0, kSharedKeys + 1);
  for (const pid_t pid : processes) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  check("fork before use", kSharedKeys);
}

TEST_F(Crowd, ForkedAfterTheStoreWasUsed) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "under the thread sanitizer a child of a process with threads cannot start one";
#endif
  const auto store = open();
  put(*store, 0);
  read(*store, 0, true);
  for (std::uint32_t i = 1; i < kSharedKeys;
       ++i) {  // each put is by a process that has used the store, and by a child of it
    EXPECT_EQ(child([&] {
                read(*store, i - 1, true);
                put(*store, i);
                return child([&] {
                  read(*store, i, true);
                  put(*store, i);
                  return 0;
                });
              }),
              0);
    read(*store, i, true);
  }
  check("fork after use", kSharedKeys);
}

TEST_F(Crowd, TwoSpellingsOfOnePathAreOneStore) {
  open();
  std::filesystem::create_directory_symlink(directory(), dir_.path() + "/link");
  std::vector<std::shared_ptr<Store>> stores;
  for (const std::string& spelling :
       {directory(), dir_.path() + "/./store/../store//", dir_.path() + "/link"}) {
    StoreOptions o = options();
    o.directory = spelling;
    stores.push_back(Store::open(o));
    EXPECT_EQ(stores.back()->identity(), stores.front()->identity()) << spelling;
  }
  std::vector<std::thread> threads;
  constexpr std::uint32_t kThreads = 3 * kSharedKeys;
  for (std::uint32_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] { take_part(*stores[i % 3], i / 3, kThreads); });
  for (auto& thread : threads) thread.join();
  stores.front()->gc(std::uint64_t{1} << 30, soon());  // all stores must follow the file that replaced it
  for (const auto& store : stores)
    for (std::uint32_t number = 0; number < kSharedKeys; ++number) read(*store, number, true);
  stores.clear();
  check("three spellings of one path", kSharedKeys);
}

}  // namespace
}  // namespace kiln::cache::test
