// A slow disk: readers never wait for a writer's sync.
#include <algorithm>
#include <thread>

#include "tests/fault/store/fixture.hpp"

namespace kiln::cache::test {
namespace {

using namespace std::chrono_literals;

constexpr int kReaders = 8;
constexpr std::uint32_t kSlowNumbers = 32;
constexpr auto kDelay = 50ms;
constexpr std::size_t kMaxReads = 1 << 16;  // per reader

struct Reads {
  std::atomic<bool> stop;
  std::atomic<std::uint64_t> wrong, puts;
  struct Reader {
    std::atomic<std::size_t> count;
    std::uint32_t microseconds[kMaxReads];
  } readers[kReaders];
};

class SlowDisk : public FaultFixture {
 protected:
  struct Outcome {
    std::uint64_t reads = 0, puts = 0, slow = 0, p50 = 0, p99 = 0, worst = 0;  // p50, p99, worst in us
  };

  static void read(Store& store, Reads& reads, int which) {
    Reads::Reader& mine = reads.readers[which];
    for (std::uint32_t number = which; !reads.stop && mine.count < kMaxReads; ++number) {
      const auto begin = base::Clock::now();
      if (!holds(store, number % kSlowNumbers, kImage)) ++reads.wrong;
      mine.microseconds[mine.count++] = static_cast<std::uint32_t>(
          std::chrono::duration_cast<std::chrono::microseconds>(base::Clock::now() - begin).count());
      std::this_thread::sleep_for(500us);  // so that readers do not wait for each other's cores
    }
  }

  /// Eight readers beside one writer. Each sync of the writer takes kDelay, or no time.
  Outcome run(const char* rules, bool processes) {
    {
      const auto store = open();
      for (std::uint32_t number = 0; number < kSlowNumbers; ++number)
        EXPECT_NE(store->put(record_of(number, kImage)).put, Put::failed);
    }
    Shared<Reads> reads;
    std::vector<pid_t> children;
    for (int which = 0; processes && which < kReaders; ++which) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      read(*open(), *reads, which);
      ::_exit(0);
    }
    const int status = child([&] {  // the writer; a child, so that the rules apply only to it
      const auto store = open();
      std::vector<std::thread> threads;
      for (int which = 0; !processes && which < kReaders; ++which)
        threads.emplace_back([&, which] { read(*store, *reads, which); });
      kiln_fault_arm(rules);
      std::uint32_t number = 1000 + first_;
      for (const auto until = base::Deadline::after(1500ms); !until.passed(); ++number) {
        if (store->put(record_of(number, kImage)).put == Put::stored) ++reads->puts;
        if (!rules) std::this_thread::sleep_for(kDelay);  // keeps the rate of puts the same
      }
      reads->stop = true;
      for (std::thread& thread : threads) thread.join();
      return 0;
    });
    EXPECT_EQ(status, 0);
    for (const pid_t pid : children) ::waitpid(pid, nullptr, 0);
    first_ += 1000;

    std::vector<std::uint32_t> all;
    for (const auto& reader : reads->readers)
      all.insert(all.end(), reader.microseconds, reader.microseconds + reader.count);
    EXPECT_EQ(reads->wrong, 0u);
    EXPECT_GT(all.size(), 1000u);
    if (all.empty()) return {};
    std::sort(all.begin(), all.end());
    const std::uint32_t half = std::chrono::duration_cast<std::chrono::microseconds>(kDelay).count() / 2;
    return {all.size(),
            reads->puts,
            static_cast<std::uint64_t>(all.end() - std::upper_bound(all.begin(), all.end(), half)),
            all[all.size() / 2],
            all[all.size() * 99 / 100],
            all.back()};
  }

  void compare(const char* fault, bool processes) {
    const std::string rules = "sync@data.mdb:1+:delay=" + std::to_string(kDelay.count());
    const Outcome quick = run(nullptr, processes), slow = run(rules.c_str(), processes);
    for (const auto& [name, o] : {std::pair{"", quick}, {", each sync 50 ms", slow}})
      report(fault + std::string(name), {{"puts", o.puts},
                                         {"reads", o.reads},
                                         {"p50 (us)", o.p50},
                                         {"p99 (us)", o.p99},
                                         {"worst (us)", o.worst},
                                         {"over 25 ms", o.slow}});
    EXPECT_GT(slow.puts, 5u);
    // The writer is in a sync nearly all the time, so readers that waited for syncs would be slow. The run
    // without delays shows the cost of other load on this machine.
    EXPECT_LT(slow.p99, 25'000u);
    EXPECT_LE(static_cast<double>(slow.slow) / static_cast<double>(slow.reads),
              0.001 + static_cast<double>(quick.slow) / static_cast<double>(quick.reads));
  }

  std::uint32_t first_ = 0;
};

TEST_F(SlowDisk, ReadersInOtherProcessesDoNotWaitForASync) { compare("readers in processes", true); }

TEST_F(SlowDisk, ReadersInThreadsDoNotWaitForASync) { compare("readers in threads", false); }

}  // namespace
}  // namespace kiln::cache::test
