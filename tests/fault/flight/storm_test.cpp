// Many processes, few keys: one compile per key when puts succeed, and no queue when they do not.
#include <fcntl.h>

#include "base/fd.hpp"
#include "tests/fault/flight/fake_path.hpp"

namespace kiln::fault {
namespace {

constexpr int kProcesses = 64;

class FlightStormTest : public FlightFixture {
 protected:
  /// Runs `body(path, index)` in 64 processes that leave one barrier together. Returns the wall time in ms.
  double storm(FakeLog& log, const std::function<void(FakePath&, int)>& body) {
    const Shared<Barrier> barrier;
    Children children;
    for (int i = 0; i < kProcesses; ++i) {
      children.start([&, i] {
        FakePath path(open(), flights(), log);
        barrier->wait(kProcesses + 1);
        body(path, i);
        return 0;
      });
    }
    barrier->wait(kProcesses + 1);
    const auto start = base::Clock::now();
    children.wait();
    return ms_since(start);
  }
};

TEST_F(FlightStormTest, SixtyFourProcessesAndThirtyTwoColdKeysCompileThirtyTwoTimes) {
  constexpr std::uint32_t keys = 32;
  const int repetitions = setting("KILN_SOAK_REPETITIONS", 3);
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    const Shared<FakeLog> log;
    const auto first = static_cast<std::uint32_t>(repetition) * 1000;
    const double wall = storm(*log, [&](FakePath& path, int index) {
      for (std::uint32_t k = 0; k < keys; ++k)
        path.ask(first + (k + static_cast<std::uint32_t>(index)) % keys);
    });
    std::printf("%d compiles, %d served, %.0f ms\n", log->compiles.load(), log->served.load(), wall);
    EXPECT_EQ(log->compiles, static_cast<int>(keys));
    EXPECT_EQ(log->served, kProcesses * static_cast<int>(keys));
    EXPECT_EQ(log->wrong, 0);
    EXPECT_EQ(log->left + log->timed_out + log->told, 0);
  }
}

TEST_F(FlightStormTest, WhenPutsCannotLandNobodyWaitsForMoreThanTwoHolders) {
  put_wait_ = 5ms;
  const base::Fd gate(::open(data_file().c_str(), O_RDWR | O_CLOEXEC));
  const auto writer = cache::WriterPass::enter(gate.get(), in(1s));  // like a stopped writer
  ASSERT_TRUE(writer);
  const Shared<FakeLog> log;
  const double wall = storm(*log, [](FakePath& path, int) {
    path.compile_time = 100ms;
    path.ask(1);
  });
  std::printf("%d compiles, %d in a row, %d left the queue, %.0f ms\n", log->compiles.load(),
              longest_row(*log), log->left.load(), wall);
  EXPECT_EQ(log->served, kProcesses);
  EXPECT_EQ(log->compiles, kProcesses);
  EXPECT_GE(log->left, kProcesses - 8);
  EXPECT_LE(longest_row(*log), 4) << "two holders, then everybody; one more for who came late";
  EXPECT_LT(wall, 3000) << "in a row it would be 6400";
}

TEST_F(FlightStormTest, WhenTheCompileFailsEverybodyWhoWaitedIsTold) {
  const Shared<FakeLog> log;
  const double wall = storm(*log, [](FakePath& path, int) {
    path.compile_time = 100ms;
    path.result = FakePath::Result::fails;
    path.ask(1);
  });
  std::printf("%d compiles, %d told, %d in a row, %.0f ms\n", log->compiles.load(), log->told.load(),
              longest_row(*log), wall);
  EXPECT_EQ(log->served, kProcesses);
  EXPECT_EQ(log->wrong, 0);
  EXPECT_EQ(log->compiles + log->told, kProcesses);
  EXPECT_GE(log->told, kProcesses / 2) << "those who came while it was being compiled";
  EXPECT_LE(longest_row(*log), 4);
}

TEST_F(FlightStormTest, KilledHoldersDoNotMakeAQueue) {
  // Every compile ends with a kill. Each process that is left must get its turn at once.
  const Shared<FakeLog> log;
  const double wall = storm(*log, [&](FakePath& path, int) {
    path.compile_time = 100ms;
    path.result = FakePath::Result::dies;
    path.ask(1);
  });
  std::printf("%d compiles, %d left the queue, %.0f ms\n", log->compiles.load(), log->left.load(), wall);
  EXPECT_EQ(log->compiles, kProcesses);
  EXPECT_GE(log->left, kProcesses - 8) << "after two were killed";
  EXPECT_LT(wall, 3000);
}

TEST_F(FlightStormTest, ARecordThatLandsEndsTheMemoryOfThoseThatDidNot) {
  const Shared<FakeLog> log;
  FakePath path(open(), flights(), *log);
  const auto count = [&] { return flights()->board().at(0).without_record; };
  for (std::uint32_t expected : {1u, 2u}) {
    auto taken = flights()->take(key_of(1), in(1s));
    ASSERT_TRUE(taken.flight);
    taken.flight->compiling("x");
    taken.flight.reset();  // gives the flight up without a result
    EXPECT_EQ(count(), expected);
  }
  path.ask(1);
  EXPECT_EQ(count(), 0u);
}

}  // namespace
}  // namespace kiln::fault
