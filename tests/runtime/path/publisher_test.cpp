// The publisher: a bounded queue, one thread, and the flight lock held until the commit. No caller
// waits for a disk that hangs.
#include "runtime/path/publisher.hpp"

#include <fcntl.h>

#include "base/fd.hpp"
#include "base/log.hpp"
#include "support/time_limit.hpp"
#include "tests/fault/flight/fake_path.hpp"

namespace kiln::fault {
namespace {

using runtime::Counters;
using runtime::Publisher;
using runtime::WhenFull;

class PublisherTest : public FlightFixture {
 protected:
  void SetUp() override {
    put_wait_ = 60s;  // a put hangs until the gate is free
    FlightFixture::SetUp();
    store_ = open();
    gate_ = base::Fd(::open(data_file().c_str(), O_RDWR | O_CLOEXEC));
    base::set_log_sink([this](base::Level, std::string_view line) { lines_.emplace_back(line); });
  }
  void TearDown() override { base::set_log_sink({}); }

  /// Locks the gate like a process that was stopped inside a write.
  cache::RangeLock hang() {
    return std::move(*cache::RangeLock::acquire(gate_.get(), cache::kGateOffset + 2,
                                                cache::RangeLock::Mode::exclusive, in(1s)));
  }
  void give(Publisher& publisher, std::uint32_t number, WhenFull when_full = WhenFull::skip,
            std::shared_ptr<cache::Flight> flight = nullptr, std::size_t size = 5000) {
    publisher.hand_over({record_of(number, size), "scale N=1", store_, std::move(flight)}, when_full);
  }

  std::shared_ptr<cache::Store> store_;
  base::Fd gate_;
  std::shared_ptr<Counters> counters_ = std::make_shared<Counters>();
  std::vector<std::string> lines_;
};

TEST_F(PublisherTest, FlushMeansThatItIsInTheStore) {
  Publisher publisher(counters_);
  EXPECT_TRUE(publisher.flush());
  for (std::uint32_t n = 0; n < 20; ++n) give(publisher, n);
  EXPECT_TRUE(publisher.flush());
  for (std::uint32_t n = 0; n < 20; ++n) EXPECT_TRUE(holds(*store_, n));
  EXPECT_EQ(counters_->puts, 20u);
  give(publisher, 3);
  EXPECT_TRUE(publisher.flush());
  EXPECT_EQ(counters_->puts_present, 1u);
}

TEST_F(PublisherTest, TheFlightLockIsHeldUntilTheCommit) {
  Publisher publisher(counters_);
  auto held = hang();
  auto taken = flights()->take(key_of(1), in(0ms));
  taken.flight->compiling("scale N=1");
  give(publisher, 1, WhenFull::skip, std::move(taken.flight));
  EXPECT_FALSE(publisher.flush(in(50ms)));
  EXPECT_EQ(flights()->take(key_of(1), in(20ms)).end, cache::FlightFile::End::timed_out);
  EXPECT_EQ(flights()->board().at(0).state, cache::FlightState::compiling);
  held.release();
  EXPECT_TRUE(publisher.flush());
  EXPECT_EQ(flights()->take(key_of(1), in(0ms)).end, cache::FlightFile::End::taken);
  EXPECT_EQ(flights()->board().at(0).state, cache::FlightState::published);
}

TEST_F(PublisherTest, AFullQueueSkipsThePutCountsItAndWarnsOnce) {
  Publisher publisher(counters_, {4, 1 << 20, 2000ms});
  auto held = hang();
  for (std::uint32_t n = 0; n < 10; ++n) give(publisher, n);
  EXPECT_EQ(counters_->skipped_queue_full, 6u);
  auto taken = flights()->take(key_of(11), in(0ms));
  taken.flight->compiling("scale N=1");
  give(publisher, 11, WhenFull::skip, std::move(taken.flight));
  EXPECT_EQ(flights()->board().at(0).state, cache::FlightState::unpublished);
  EXPECT_EQ(flights()->take(key_of(11), in(0ms)).end, cache::FlightFile::End::taken);
  held.release();
  EXPECT_TRUE(publisher.flush());
  EXPECT_EQ(counters_->puts, 4u);
  EXPECT_EQ(puts_skipped(*counters_), 7u);
  EXPECT_EQ(store_->stats().entries, 4u);
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_NE(lines_[0].find("scale N=1"), std::string::npos) << lines_[0];
  EXPECT_NE(lines_[0].find(directory()), std::string::npos) << lines_[0];
}

TEST_F(PublisherTest, TheQueueIsBoundedInBytesButTakesOneRecordOfAnySize) {
  Publisher publisher(counters_, {64, 100'000, 2000ms});
  auto held = hang();
  give(publisher, 1, WhenFull::skip, nullptr, 300'000);
  give(publisher, 2);
  EXPECT_EQ(counters_->skipped_queue_full, 1u);
  held.release();
  EXPECT_TRUE(publisher.flush());
  EXPECT_TRUE(holds(*store_, 1, 300'000));
  for (std::uint32_t n = 10; n < 20; ++n) give(publisher, n, WhenFull::wait, nullptr, 40'000);
  EXPECT_TRUE(publisher.flush());
  EXPECT_EQ(counters_->puts, 11u) << "who waits for room loses nothing";
}

TEST_F(PublisherTest, SkippedPutsAreCountedByReason) {
  Publisher publisher(counters_);
  const auto read_only = open_read_only();
  publisher.hand_over({record_of(1), "x", read_only, nullptr}, WhenFull::skip);
  EXPECT_TRUE(publisher.flush());
  EXPECT_EQ(counters_->skipped_read_only, 1u);
  put_wait_ = 10ms;
  cache::StoreOptions hasty = options();
  const auto impatient = cache::Store::open(hasty);
  const auto held = hang();
  publisher.hand_over({record_of(1), "x", impatient, nullptr}, WhenFull::skip);
  EXPECT_TRUE(publisher.flush());
  EXPECT_EQ(counters_->skipped_gate_timeout, 1u);
  publisher.hand_over({record_of(2), "x", impatient, nullptr}, WhenFull::skip);
  EXPECT_TRUE(publisher.flush());
  EXPECT_EQ(lines_.size(), 2u) << "one warning for each reason";
  kiln_stats stats{};
  read(*counters_, stats);
  EXPECT_EQ(stats.puts_skipped, 3u);
  EXPECT_EQ(stats.skipped_read_only, 1u);
  EXPECT_EQ(stats.skipped_gate_timeout, 2u);
}

TEST_F(PublisherTest, ItsEndWaitsTwoSecondsForAPutThatHangsAndLeavesItBehind) {
  auto held = hang();
  auto publisher = std::make_unique<Publisher>(counters_);
  auto taken = flights()->take(key_of(1), in(0ms));
  give(*publisher, 1, WhenFull::skip, std::move(taken.flight));
  give(*publisher, 2);
  const auto start = base::Clock::now();
  publisher.reset();
  EXPECT_GE(ms_since(start), 1700);
  EXPECT_LT(ms_since(start), at_most(3500));
  held.release();  // the records that were left in the queue still reach the store
  EXPECT_TRUE(eventually([&] { return counters_->puts == 2; }));
  EXPECT_TRUE(holds(*store_, 1) && holds(*store_, 2));
  EXPECT_EQ(flights()->take(key_of(1), in(1s)).end, cache::FlightFile::End::taken);
  EXPECT_TRUE(eventually([&] { return counters_.use_count() == 1; })) << "and the thread ends";
}

TEST_F(PublisherTest, AnEmptyQueueEndsAtOnce) {
  const auto start = base::Clock::now();
  {
    Publisher publisher(counters_);
    give(publisher, 1);
    publisher.flush();
  }
  { Publisher unused(counters_); }
  EXPECT_LT(ms_since(start), at_most(1000));
}

TEST_F(PublisherTest, AForkedChildHasAQueueOfItsOwn) {
  auto publisher = std::make_unique<Publisher>(counters_);
  auto held = hang();
  give(*publisher, 1);
  EXPECT_EQ(cache::test::in_child([&] {
              const auto start = base::Clock::now();
              if (!publisher->flush()) return 1;  // the queue is empty
              publisher.reset();
              return ms_since(start) < 1000 ? 0 : 2;
            }),
            0);
  held.release();
  EXPECT_TRUE(publisher->flush());
  EXPECT_TRUE(holds(*store_, 1));
}

TEST_F(PublisherTest, AForkedChildPublishesWhatItCompiles) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer allows no thread in the child of a process with threads";
#elif defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the address sanitizer's allocator may be locked in the child of a process with threads";
#endif
  Publisher publisher(counters_);
  give(publisher, 1);
  EXPECT_EQ(cache::test::in_child([&] {
              give(publisher, 2);
              return publisher.flush() && holds(*store_, 2) ? 0 : 1;
            }),
            0);
  EXPECT_TRUE(publisher.flush());
  EXPECT_TRUE(holds(*store_, 1) && holds(*store_, 2));
}

}  // namespace
}  // namespace kiln::fault
