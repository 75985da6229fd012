// A put killed at each of its system calls: before it, after it, and in the middle of each write. The next
// process finds everything acknowledged and nothing partial, and can put the same key at once.
#include <filesystem>

#include "base/deadline.hpp"
#include "support/nightly.hpp"
#include "support/time_limit.hpp"
#include "tests/fault/store/fixture.hpp"

namespace kiln::cache::test {
namespace {

constexpr std::uint32_t kKilledKeys = 12;
constexpr int kMaxSteps = 500;
/// Time limit of the process after the killed one. The kernel frees the locks at once;
/// the limit only allows for a busy machine.
constexpr auto kNextProcess = std::chrono::seconds(10);

struct Tally {
  std::uint64_t killed = 0, slowest_ms = 0;
};

class KilledPut : public FaultFixture {
 protected:
  /// Puts `number` in a child under the rule `calls:step:action`. Returns true when the child was not killed.
  bool put_under(const std::string& rule, std::uint32_t number) {
    const int status = child([&] {
      kiln_fault_arm(rule.c_str());
      const auto store = open();
      return put(*store, number) == Put::stored ? 0 : 1;
    });
    EXPECT_TRUE(status == 0 || status == 128 + SIGKILL) << rule << ": " << status;
    return status != 128 + SIGKILL;
  }

  void ask_next(std::uint32_t number, Tally& tally) {
    const auto begin = base::Clock::now();
    const int status = child([&] {
      const auto store = open();
      const Record expected = record_of(number, kImage);
      const auto got = store->get(key_of(number), expected.key_text, soon());
      if (got.record && !same(*got.record, expected)) return 1;
      if (!got.record && got.miss != Miss::absent) return 2;
      const Put result = put(*store, number);
      return result == Put::stored || result == Put::present ? 0 : 3;
    });
    const auto took = base::Clock::now() - begin;
    EXPECT_EQ(status, 0);
    EXPECT_LT(took, at_most(kNextProcess));
    tally.slowest_ms = std::max(
        tally.slowest_ms,
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
    EXPECT_EQ(check_afresh(), 0);
  }

  /// Kills a put at each step of `calls` in turn with `action`.
  /// `from_nothing`: each time in an empty directory. CI takes every other step. Since "kill" dies before a
  /// step and "kill-after" dies after it, both together still die between any two steps.
  void step_through(const char* calls, const char* action, bool from_nothing, Tally& tally) {
    attempted_ = kMaxSteps;
    const std::uint64_t before = tally.killed;
    int steps = 0;
    for (bool ended = false; !ended && steps < kMaxSteps && !HasFailure(); steps += ci_or_night(2, 1)) {
      const auto number = static_cast<std::uint32_t>(steps) % (kMaxNumbers - kKilledKeys);
      if (from_nothing || steps == 0) {
        std::filesystem::remove_all(directory());
        for (auto& each : promises_->acknowledged) each = false;
        if (!from_nothing) {
          const auto store = open();
          for (std::uint32_t other = kMaxNumbers - kKilledKeys; other < kMaxNumbers; ++other)
            ASSERT_EQ(put(*store, other), Put::stored);
        }
      }
      ended = put_under(std::string(calls) + ':' + std::to_string(steps + 1) + ':' + action, number);
      if (!ended) ++tally.killed;
      ask_next(number, tally);
    }
    EXPECT_LT(steps, kMaxSteps);
    EXPECT_GT(tally.killed, before) << calls << " " << action << ": no step was ever reached";
  }

  void report_and_expect_nothing_lost(const char* fault, const Tally& tally) {
    report(fault, {{"killed", tally.killed},
                   {"puts", promises_->puts},
                   {"reads", promises_->reads},
                   {"slowest next process (ms)", tally.slowest_ms},
                   {"lost", promises_->lost},
                   {"wrong", promises_->wrong}});
    EXPECT_EQ(promises_->lost, 0u);
    EXPECT_EQ(promises_->wrong, 0u);
    EXPECT_EQ(promises_->failed + promises_->full, 0u);
  }
};

TEST_F(KilledPut, AtEachStepLosesNothing) {
  Tally tally;
  step_through("any", "kill", false, tally);
  step_through("any", "kill-after", false, tally);
  step_through("data@data.mdb", "kill-half", false, tally);
  step_through("meta@data.mdb", "kill-half", false, tally);
  report_and_expect_nothing_lost("put killed at each step", tally);
}

TEST_F(KilledPut, AtEachStepOfTheFirstPutOfAllLosesNothing) {
  Tally tally;
  step_through("any", "kill", true, tally);
  step_through("any", "kill-after", true, tally);
  step_through("data", "kill-half", true, tally);
  report_and_expect_nothing_lost("first put, which makes the file, killed at each step", tally);
}

}  // namespace
}  // namespace kiln::cache::test
