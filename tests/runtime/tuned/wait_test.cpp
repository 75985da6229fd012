// Which calls wait for a store that may have a choice, and which choice holds when the store does not answer.
#include "runtime/tuned/fixture.hpp"
#include "support/time_limit.hpp"

namespace kiln::testing {
namespace {

TEST_F(Tuned, AStoreThatCouldNotBeAskedDecidesNothing) {
  process([&] {
    choose(1, "64");
    Service service(options());
    tunable(service);
    const KernelTemplate t = service.open("t");
    t.get({{"N", 2}, {"B", 128}});
    {
      const Held held(tree_.at("cache"));
      expect_error(Errc::deadline, {}, [&] { t.get(GetOptions(0.05), 1); });
    }
    EXPECT_EQ(block_of(t.get(1)), 64u) << "the next call is told";
    EXPECT_EQ(block_of(service, 1), 64u);
  });
}

TEST_F(Tuned, NobodyWhoDoesNotWaitForAKernelWaitsForAStore) {
  process([&] {
    for (const int n : {1, 2, 3, 4}) choose(n, "64");
    Service service(options());
    tunable(service, "fallback = \"slow\"\n");
    generic(service, "slow");
    service.open("slow").get({{"N", 1}});
    const KernelTemplate t = service.open("t");
    t.get({{"N", 9}, {"B", 128}});  // a first load, which the test does not measure
    const CUstream stream = make_stream();
    ASSERT_EQ(cu().cuStreamBeginCapture(stream, 0), 0);
    std::optional<Future> later;
    {
      const Held held(tree_.at("cache"));
      EXPECT_LT(seconds([&] { later = t.get_async({{"N", 2}}); }), at_most(1.0));
      EXPECT_LT(seconds([&] { t.prefetch({{"N", 3}}); }), at_most(1.0));
      EXPECT_LT(seconds([&] { expect_error(Errc::not_ready, {"capturing"}, [&] { t.get(stream, 4); }); }),
                at_most(1.0));
      double held_up = seconds([&] {
        EXPECT_EQ(std::string(t.get_or_fallback({{"N", 1}}).info().specialization), "slow N=1 B=96");
      });
      EXPECT_LT(held_up, at_most(2.0)) << "100 ms, and what a fallback takes that is ready";
    }
    EXPECT_EQ(block_of(later->get()), 64u);
    EXPECT_TRUE(comes_true([&] { return static_cast<bool>(t.try_get(3)); }));
    EXPECT_EQ(block_of(t.try_get(3)), 64u);
    EXPECT_TRUE(comes_true([&] { return service.adopt() > 0; }));
    EXPECT_EQ(block_of(t.get_or_fallback({{"N", 1}})), 64u);
    toolchain::CUgraph graph = nullptr;
    EXPECT_EQ(cu().cuStreamEndCapture(stream, &graph), 0);
  });
}

}  // namespace
}  // namespace kiln::testing
