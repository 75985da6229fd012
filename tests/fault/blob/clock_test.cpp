// Clocks that are years ahead or behind: a lease is neither stolen nor waited for after its end.
#include "tests/fault/blob/fixture.hpp"
#include "tests/support/shifted_clock.hpp"

namespace kiln::runtime::test {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kTenYears = 10ll * 365 * 24 * 3600;

class BlobClock : public BlobFault {
 protected:
  void TearDown() override { kiln_shift_clock(0); }

  /// A process with another clock takes the lease, and puts or dies.
  void hold(std::int64_t shift, bool dies) {
    { Service service(options()); }
    talk_->leased = false, talk_->go_on = false;
    Children children;
    children.start([&] {
      kiln_shift_clock(shift);
      return make([&] {
        if (dies) ::raise(SIGKILL);
      });
    });
    ASSERT_TRUE(fault::eventually([&] { return talk_->leased.load(); }));
    Service service(options());
    BlobSpace& space = space_of(service);
    const auto early = space.lease("k", base::Deadline::after(100ms));
    EXPECT_FALSE(early.found || early.lease) << "it is not stolen while its holder lives";
    talk_->go_on = true;
    const auto later = space.lease("k", soon());
    if (dies) {
      EXPECT_TRUE(later.lease) << "it is free at once";
    } else {
      EXPECT_EQ(later.found, "made");
    }
    EXPECT_EQ(children.wait(), std::vector<int>{dies ? 128 + SIGKILL : 0});
    space.erase("k");
  }
};

TEST_F(BlobClock, ALeaseOfAProcessWithAClockFarAheadIsKeptUntilItsEnd) {
  hold(kTenYears, false);
  hold(kTenYears, true);
}

TEST_F(BlobClock, ALeaseOfAProcessWithAClockFarBehindIsKeptUntilItsEnd) {
  hold(-kTenYears, false);
  hold(-kTenYears, true);
}

TEST_F(BlobClock, AClockThatJumpsUnderALeaseChangesNothing) {
  Service service(options());
  BlobSpace& space = space_of(service);
  auto held = space.lease("k", soon());
  ASSERT_TRUE(held.lease);
  for (const std::int64_t shift : {kTenYears, -kTenYears}) {
    kiln_shift_clock(shift);
    Children children;
    children.start([&] {
      Service own(options());
      const auto early = space_of(own).lease("k", base::Deadline::after(100ms));
      return early.found || early.lease ? 1 : 0;
    });
    EXPECT_EQ(children.wait(), std::vector<int>{0});
  }
  std::string why;
  EXPECT_EQ(space.put("k", "made", std::move(held.lease), why), BlobSpace::Put::stored);
  EXPECT_EQ(found("k"), "made");
}

TEST_F(BlobClock, ASpaceWithUsesOfTheFutureStillKeepsItsBudget) {
  const std::string bytes = noise(64 << 10);
  const auto put_some = [&](std::int64_t shift, const std::string& prefix) {
    Children children;
    children.start([&] {
      kiln_shift_clock(shift);
      Service service(options());
      BlobSpace& space = service.blobs().open({"s", "v1", 1 << 20});
      for (int i = 0; i < 30; ++i)
        if (put(space, prefix + std::to_string(i), bytes + prefix + std::to_string(i)) !=
            BlobSpace::Put::stored)
          return 1;
      return 0;
    });
    EXPECT_EQ(children.wait(), std::vector<int>{0});
  };
  put_some(kTenYears, "ahead ");
  put_some(0, "now ");
  put_some(-kTenYears, "behind ");
  Service service(options());
  BlobSpace& space = service.blobs().open({"s", "v1", 1 << 20});
  std::uint64_t stored = 0;
  for (const auto& listed : space.list()) stored += listed.stored_bytes;
  EXPECT_LE(stored, 1u << 20);
  EXPECT_TRUE(space.get("behind 29")) << "the last one put stays, whatever its clock says";
}

}  // namespace
}  // namespace kiln::runtime::test
