// Steps 2, 3, 5 and 6 of the path with a fake compile that only takes time. It uses the store and the flight
// lock like runtime::Core, without a compiler.
#pragma once

#include <algorithm>

#include "cache/flight/flight.hpp"
#include "tests/cache/fixture.hpp"
#include "tests/support/processes.hpp"

namespace kiln::fault {

using namespace std::chrono_literals;
using cache::test::key_of;
using cache::test::record_of;

/// One compile. All processes can compare its times, because the monotonic clock is the host's.
struct Compile {
  std::int64_t began_ns = 0, ended_ns = 0;
  bool locked = false;
};

struct FakeLog {
  static constexpr int kLimit = 8192;
  std::atomic<int> compiles{0}, served{0}, wrong{0}, told{0}, left{0}, timed_out{0};
  Compile all[kLimit];
};

inline std::int64_t now_ns() { return base::Clock::now().time_since_epoch().count(); }

class FakePath {
 public:
  enum class Result { ok, fails, dies };
  FakePath(std::shared_ptr<cache::Store> store, std::shared_ptr<cache::FlightFile> flights, FakeLog& log)
      : store_(std::move(store)), flights_(std::move(flights)), log_(log) {}

  std::chrono::milliseconds compile_time{5}, patience{20'000};
  Result result = Result::ok;

  void ask(std::uint32_t number) {
    if (look(number)) return;
    auto taken = flights_->take(key_of(number), base::Deadline::after(patience));
    if (taken.end == cache::FlightFile::End::failed) {
      log_.wrong += taken.error != error_of(number);
      ++log_.told, ++log_.served;
      return;
    }
    log_.left += taken.end == cache::FlightFile::End::left;
    log_.timed_out += taken.end == cache::FlightFile::End::timed_out;
    if (look(number)) return;
    if (taken.flight) taken.flight->compiling("key " + std::to_string(number));
    Compile& compile = log_.all[log_.compiles++ % FakeLog::kLimit];
    compile.locked = taken.flight != nullptr;
    compile.began_ns = now_ns();
    std::this_thread::sleep_for(compile_time);
    if (result == Result::dies) ::raise(SIGKILL);
    compile.ended_ns = now_ns();
    ++log_.served;
    if (result == Result::fails) {
      if (taken.flight) taken.flight->failed(error_of(number));
      return;
    }
    const auto put = store_->put(record_of(number)).put;
    if (!taken.flight) return;
    if (put == cache::Put::stored || put == cache::Put::present)
      taken.flight->published();
    else
      taken.flight->unpublished();
  }

  static std::string error_of(std::uint32_t number) { return "the log of " + std::to_string(number); }

 private:
  bool look(std::uint32_t number) {
    const auto expected = record_of(number);
    const auto got = store_->get(key_of(number), expected.key_text, cache::test::soon());
    if (!got.record) return false;
    log_.wrong += !cache::test::same(*got.record, expected);
    ++log_.served;
    return true;
  }

  std::shared_ptr<cache::Store> store_;
  std::shared_ptr<cache::FlightFile> flights_;
  FakeLog& log_;
};

/// The longest row of compiles in which each began after the previous one had ended.
inline int longest_row(const FakeLog& log) {
  std::vector<Compile> all(log.all, log.all + std::min<int>(log.compiles, FakeLog::kLimit));
  std::erase_if(all, [](const Compile& c) { return c.ended_ns == 0; });
  std::sort(all.begin(), all.end(),
            [](const Compile& a, const Compile& b) { return a.ended_ns < b.ended_ns; });
  int row = 0;
  std::int64_t end = 0;
  for (const Compile& c : all)
    if (c.began_ns >= end) ++row, end = c.ended_ns;
  return row;
}

/// A store in a directory of its own, with its flight file in a private /dev/shm.
class FlightFixture : public cache::test::StoreFixture {
 protected:
  void SetUp() override {
    open();  // creates the file before anything is measured
    ASSERT_EQ(::mkdir(shm().c_str(), 0700), 0);
  }
  std::string shm() const { return dir_.path() + "/shm"; }
  std::string lock_path() const { return shm() + "/kiln-" + std::to_string(::geteuid()) + "-s.flight"; }
  std::string board_path() const { return shm() + "/kiln-" + std::to_string(::geteuid()) + "-s.board"; }
  std::shared_ptr<cache::FlightFile> flights() const { return flights_in(shm()); }
  std::shared_ptr<cache::FlightFile> flights_in(const std::string& shared_memory) const {
    return cache::FlightFile::open(
        {.store_identity = "s", .store_place = directory() + "/v1", .shared_memory = shared_memory});
  }
  static base::Deadline in(std::chrono::milliseconds wait) { return base::Deadline::after(wait); }
};

}  // namespace kiln::fault
