// What each mode tells of misses after the seal.
#include "runtime/core_fixture.hpp"

namespace kiln::testing {
namespace {

class Seal : public Core {};

TEST_F(Seal, ModeWarnTellsOnceOfWhatItMakesAfterTheSealFromDiskToo) {
  {
    Service service(options());
    small(service, "s");
    service.open("s", Device::none()).compile(2);
  }
  Told told;
  Options o = options();
  o.mode = Mode::warn;
  o.on_event = told.listener();
  Service service(o);
  small(service, "s");
  const KernelTemplate t = service.open("s");
  t.get(9);
  EXPECT_EQ(told.count(Event::Kind::miss_after_seal), 0u) << "before the seal";
  service.seal();
  t.get(9);
  for (int i = 0; i < 3; ++i) t.get(1);
  t.get({{"N", "1"}});
  for (int i = 0; i < 3; ++i) t.get(2);
  const auto misses = told.of(Event::Kind::miss_after_seal);
  ASSERT_EQ(misses.size(), 2u);
  EXPECT_EQ(misses[0].specialization, "s N=1");
  EXPECT_EQ(misses[0].arch, "sm_90a");
  EXPECT_EQ(misses[1].specialization, "s N=2") << "the disk is not memory";
  EXPECT_EQ(service.missing(), "") << "nothing was refused";
  EXPECT_EQ(service.stats().sealed_misses, 0u);
  service.prepare("[[prewarm]]\ntemplate = \"s\"\nN = 5\n").wait();
  EXPECT_EQ(told.count(Event::Kind::miss_after_seal), 2u) << "prepare is allowed";
}

TEST_F(Seal, ModeSealedTellsOfEachRefusal) {
  Told told;
  Options o = options();
  o.mode = Mode::sealed;
  o.on_event = told.listener();
  Service service(o);
  small(service, "s");
  const KernelTemplate t = service.open("s");
  service.seal();
  for (int i = 0; i < 3; ++i) expect_error(Errc::not_ready, {}, [&] { t.get(1); });
  EXPECT_EQ(told.count(Event::Kind::miss_after_seal), 3u);
  EXPECT_EQ(told.all().size(), 3u) << "and of nothing else";
  EXPECT_EQ(service.stats().sealed_misses, 3u);
  EXPECT_FALSE(t.try_get(1));
  EXPECT_EQ(told.all().size(), 3u) << "try_get is no ask";
}

TEST_F(Seal, ModeJitTellsNothing) {
  Told told;
  Options o = options();
  o.on_event = told.listener();
  Service service(o);
  small(service, "s");
  service.seal();
  service.open("s").get(1);
  EXPECT_EQ(told.count(Event::Kind::miss_after_seal), 0u);
}

TEST_F(Seal, AGetThatIsUnderWayWhenTheSealComesIsServed) {
  Options o = held();
  o.mode = Mode::warn;
  Service service(o);
  small(service, "s");
  const KernelTemplate t = service.open("s");
  const Future f = t.get_async(1);
  service.seal();
  let_compile();
  EXPECT_TRUE(f.get());
}

}  // namespace
}  // namespace kiln::testing
