// A writer's lock that is held for long. Puts of kernels that were compiled meanwhile must not each wait
// for it one after the other.
#include <gtest/gtest.h>

#include "cache/store/file/write_transaction.hpp"
#include "runtime/path/publisher.hpp"
#include "tests/fault/flight/fake_path.hpp"

namespace kiln::fault {
namespace {

class LongWriter : public FlightFixture {};

TEST_F(LongWriter, TheTenthKeysFlightIsFreeSoonThoughTheWritersLockIsNot) {
  constexpr std::uint32_t kFirst = 10, kLast = 19;
  struct Seen {
    std::atomic<bool> locked, handed_over, release;
    std::atomic<int> end;
    std::atomic<std::int64_t> at_ns;
  };
  Shared<Seen> seen;
  Children children;
  children.start([&] {  // a writer that stops in the gate
    cache::StoreFile file(directory(), true);
    std::optional<cache::WriteTransaction> writing;
    std::string why;
    if (cache::WriteTransaction::enter(file, cache::test::soon(), writing, why) != cache::Entered::yes)
      return 1;
    seen->locked = true;
    return eventually([&] { return seen->release.load(); }) ? 0 : 2;
  });
  children.start([&] {  // another process that asks for the last key
    if (!eventually([&] { return seen->handed_over.load(); })) return 1;
    const auto taken = flights()->take(key_of(kLast), in(30s));
    seen->at_ns = now_ns();
    seen->end = static_cast<int>(taken.end);
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return seen->locked.load(); }));

  put_wait_ = 2000ms;  // the value that services use
  const auto store = open();
  const auto mine = flights();
  const auto counters = std::make_shared<runtime::Counters>();
  const std::int64_t began = now_ns();
  {
    runtime::Publisher publisher(counters);
    for (std::uint32_t number = kFirst; number <= kLast; ++number) {
      auto taken = mine->take(key_of(number), in(5s));
      ASSERT_TRUE(taken.flight);
      taken.flight->compiling("a kernel");
      publisher.hand_over({record_of(number), "a kernel", store, std::move(taken.flight)},
                          runtime::WhenFull::skip);
    }
    seen->handed_over = true;
    EXPECT_TRUE(eventually([&] { return seen->at_ns != 0; }));
    publisher.flush(in(5s));
  }
  const std::int64_t ms = (seen->at_ns - began) / 1'000'000;
  seen->release = true;
  EXPECT_EQ(children.wait(), (std::vector<int>{0, 0}));
  std::printf("FIGURES the writer's lock held: the tenth key's flight was free after %ld ms\n",
              static_cast<long>(ms));
  EXPECT_EQ(seen->end, static_cast<int>(cache::FlightFile::End::taken));
  EXPECT_LT(ms, 12'000) << "18 s: each of the nine before it waits 2 s when none learns of the other";
}

}  // namespace
}  // namespace kiln::fault
