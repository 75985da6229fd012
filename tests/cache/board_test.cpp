// The board: the facts that a reader gets, and damage, which is never believed.
#include "cache/flight/board.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "tests/cache/fixture.hpp"

namespace kiln::cache::test {
namespace {

class BoardTest : public ::testing::Test {
 protected:
  std::string path() const { return dir_.path() + "/board"; }

  base::TempDir dir_{"kiln-board-test-"};
};

TEST_F(BoardTest, TellsWhoCompilesWhatSinceWhen) {
  Board board(path(), 1), other(path(), 1);
  EXPECT_FALSE(board.read(key_of(1)));
  const auto entry = board.begin(key_of(1), "rms_norm T=bf16");
  const auto got = other.read(key_of(1));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->state, FlightState::compiling);
  EXPECT_EQ(got->subject, "rms_norm T=bf16");
  EXPECT_EQ(got->pid, ::getpid());
  EXPECT_NE(got->pid_namespace, 0u);
  EXPECT_FALSE(got->host.empty());
  EXPECT_EQ(got->flight, entry.flight);
  EXPECT_EQ(got->without_record, 0u);
  EXPECT_LT(got->seconds_since_start(), 60);
  EXPECT_NEAR(static_cast<double>(got->started_unix_ms) / 1000, static_cast<double>(::time(nullptr)), 60);
  EXPECT_EQ(got->who(), "pid " + std::to_string(::getpid()) + " on " + got->host);
  struct stat st {};
  ASSERT_EQ(::stat(path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
}

TEST_F(BoardTest, CountsEndingsWithoutARecordInARow) {
  Board board(path(), 1);
  std::uint64_t last = 0;
  const auto fly = [&](std::optional<FlightState> end, const std::string& error = "") {
    const auto entry = board.begin(key_of(1), "x");
    EXPECT_GT(entry.flight, last);
    last = entry.flight;
    if (end) board.end(entry, *end, error);
    return board.read(key_of(1))->endings_without_record();
  };
  EXPECT_EQ(fly(FlightState::unpublished), 1u);
  EXPECT_EQ(fly(FlightState::failed, "log"), 2u);
  EXPECT_EQ(board.read(key_of(1))->error, "log");
  EXPECT_EQ(fly(FlightState::published), 0u);
  EXPECT_EQ(fly({}), 0u);  // the holder was killed and wrote no ending
  EXPECT_EQ(fly({}), 1u) << "the next holder counts it";
  EXPECT_EQ(fly(FlightState::unpublished), 3u);
}

TEST_F(BoardTest, EndingsOfLongAgoAndOfAnotherBootAreForgotten) {
  BoardEntry entry;
  entry.without_record = 2;
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const std::int64_t ms = now.tv_sec * 1000;
  entry.started_ms = entry.ended_ms = ms - 1000;
  EXPECT_EQ(entry.endings_without_record(), 2u);
  entry.started_ms = entry.ended_ms = ms - 16 * 60 * 1000;
  EXPECT_EQ(entry.endings_without_record(), 0u);
  entry.started_ms = entry.ended_ms = ms + 100'000;
  EXPECT_EQ(entry.endings_without_record(), 0u);
}

TEST_F(BoardTest, AnOlderFlightsEndDoesNotHideANewerFlight) {
  Board board(path(), 1);
  const auto stopped = board.begin(key_of(1), "old");
  const auto newer = board.begin(key_of(1), "new");
  board.end(stopped, FlightState::failed, "stale");
  EXPECT_EQ(board.read(key_of(1))->flight, newer.flight);
  EXPECT_EQ(board.read(key_of(1))->state, FlightState::compiling);
}

TEST_F(BoardTest, EveryFlippedByteAndEveryTruncationIsNoInformation) {
  Board board(path(), 1);
  board.end(board.begin(key_of(1), "subject"), FlightState::failed, std::string(300, 'e'));
  const std::string good = base::read_file(path())->bytes;
  const std::size_t start = good.find("KBRD");
  ASSERT_NE(start, std::string::npos);
  ASSERT_LT(good.size() - start, 1000u);
  for (std::size_t at = start; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    std::ofstream(path(), std::ios::binary) << bad;
    EXPECT_FALSE(board.read(key_of(1))) << at - start;
    std::ofstream(path(), std::ios::binary) << good.substr(0, at);
    EXPECT_FALSE(board.read(key_of(1))) << at - start;
    EXPECT_TRUE(board.read_all().empty());
  }
  std::ofstream(path(), std::ios::binary) << good;
  EXPECT_TRUE(board.read(key_of(1)));
}

TEST_F(BoardTest, AnotherStoresEntriesAreNoInformation) {
  Board(path(), 1).begin(key_of(1), "x");
  EXPECT_FALSE(Board(path(), 2).read(key_of(1)));
  EXPECT_TRUE(Board(path(), 1).read(key_of(1)));
}

TEST_F(BoardTest, WhatIsNotOursIsNeitherReadNorTouched) {
  base::write_file(dir_.path() + "/precious", "precious");
  ASSERT_EQ(::symlink((dir_.path() + "/precious").c_str(), path().c_str()), 0);
  Board board(path(), 1);
  board.end(board.begin(key_of(1), "x"), FlightState::unpublished);
  EXPECT_FALSE(board.read(key_of(1)));
  EXPECT_EQ(base::read_file(dir_.path() + "/precious")->bytes, "precious");
  ASSERT_EQ(::unlink(path().c_str()), 0);
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  board.begin(key_of(1), "x");
  EXPECT_FALSE(board.read(key_of(1)));
  ASSERT_EQ(::unlink(path().c_str()), 0);
  if (::geteuid() != 0) return;
  base::write_file(path(), "foreign");
  ASSERT_EQ(::chown(path().c_str(), 12345, 12345), 0);
  board.begin(key_of(1), "x");
  EXPECT_FALSE(board.read(key_of(1)));
  EXPECT_EQ(base::read_file(path())->bytes, "foreign");
}

TEST_F(BoardTest, ADeletedBoardIsMadeAgainAndTheOldOneIsNotReadAnyMore) {
  Board board(path(), 1);
  const auto entry = board.begin(key_of(1), "x");
  ASSERT_EQ(::unlink(path().c_str()), 0);
  EXPECT_FALSE(board.read(key_of(1)));
  board.end(entry, FlightState::unpublished);
  EXPECT_EQ(Board(path(), 1).read(key_of(1))->without_record, 1u);
}

TEST_F(BoardTest, AFileSizeLimitCostsTheInformationAndNotTheProcess) {
  EXPECT_EQ(in_child([&] {
              const rlimit small{4096, 4096};
              ::setrlimit(RLIMIT_FSIZE, &small);
              Board board(path(), 1);
              for (std::uint32_t n = 0; n < 50; ++n) board.begin(key_of(n), "x");
              return board.read_all().size() <= 1 ? 0 : 1;
            }),
            0);
}

TEST_F(BoardTest, ThirtyTwoKeysAtOnceKeepTheirEntries) {
  std::vector<pid_t> children;
  for (std::uint32_t n = 0; n < 32; ++n) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      Board board(path(), 1);
      for (int i = 0; i < 20; ++i)
        board.end(board.begin(key_of(n), "key " + std::to_string(n)), FlightState::unpublished);
      ::_exit(0);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) ::waitpid(pid, nullptr, 0);
  Board board(path(), 1);
  int complete = 0;
  for (std::uint32_t n = 0; n < 32; ++n) {
    const auto got = board.read(key_of(n));
    ASSERT_TRUE(got) << n;
    EXPECT_EQ(got->subject, "key " + std::to_string(n));
    complete += got->without_record == 20;
  }
  EXPECT_GE(complete, 31)
      << "two keys that took one empty slot in the same moment: one may have lost its count";
  EXPECT_EQ(board.read_all().size(), 32u);
}

TEST_F(BoardTest, MoreKeysThanSlotsReplaceTheOldest) {
  Board board(path(), 1);
  for (std::uint32_t n = 0; n < 2000; ++n) {
    board.begin(key_of(n), "x");
    ASSERT_TRUE(board.read(key_of(n)));
  }
  EXPECT_LE(board.read_all().size(), 512u);
  EXPECT_GT(board.read_all().size(), 400u);
  struct stat st {};
  ASSERT_EQ(::stat(path().c_str(), &st), 0);
  EXPECT_LE(st.st_blocks * 512, 512 * 8192) << "a slot without a log is a page or two";
}

}  // namespace
}  // namespace kiln::cache::test
