// The effect of a seal in each mode, and the events of misses after the seal.
#include "runtime/core_fixture.hpp"
#include "support/child.hpp"

namespace kiln::testing {
namespace {

class Seal : public Core {
 protected:
  /// The lines that `body` logs in a new process, where no warning has been logged before.
  template <class Body>
  std::vector<std::string> said_by(Body&& body) {
    const std::string file = tree_.at("said");
    std::ofstream(file).close();
    EXPECT_EQ(in_child([&] {
                const auto append = [](std::int32_t, const char* message, std::size_t, void* to) {
                  std::ofstream(*static_cast<const std::string*>(to), std::ios::app) << message << '\n';
                };
                kiln_set_log(append, const_cast<std::string*>(&file), KILN_LOG_WARNING);
                body();
                return HasFailure() ? 1 : 0;
              }),
              0);
    std::ifstream in(file);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
};

TEST_F(Seal, AServiceWhoseModeNobodySetServesFromMemoryAloneAfterItsSeal) {
  Service service(options());
  small(service, "s");
  const KernelTemplate t = service.open("s");
  service.open("s", Device::none()).compile(2);
  const Kernel made = t.get(1);
  EXPECT_EQ(made.info().outcome, KILN_OUTCOME_COMPILED) << "before the seal it compiles";
  service.seal();
  const Stats before = service.stats();
  EXPECT_EQ(driver_calls([&] {
              EXPECT_EQ(t.get(1).handle(), made.handle());
              for (const int n : {2, 3}) expect_error(Errc::not_ready, {"sealed", "s N="}, [&] { t.get(n); });
              expect_error(Errc::not_ready, {"sealed", "s N=3"}, [&] { t.get_async(3); });
              expect_error(Errc::not_ready, {"sealed", "s N=3"}, [&] { t.prefetch(3); });
              expect_error(Errc::not_ready, {"sealed", "s N=3"}, [&] { t.compile(3); });
            }),
            0u);
  EXPECT_EQ(service.stats().sealed_misses, 5u);
  EXPECT_EQ(service.stats().compiles, before.compiles);
  EXPECT_EQ(service.stats().disk_hits, before.disk_hits);
  EXPECT_EQ(service.prepare(service.missing()).wait().compiled, 1u) << "prepare is the way past it";
  EXPECT_TRUE(t.get(3));
}

TEST_F(Seal, OfOneServiceLeavesTheOthersOpen) {
  Service sealed(options()), open(options());
  small(sealed, "s");
  small(open, "s");
  sealed.seal();
  EXPECT_TRUE(open.open("s").get(1));
  expect_error(Errc::not_ready, {"sealed", "s N=1"}, [&] { sealed.open("s").get(1); });
}

TEST_F(Seal, AServiceThatWasToldAModeKeepsItAndSaysOnceThatTheSealChangesNothing) {
  for (const Mode mode : {Mode::jit, Mode::warn}) {
    Options o = options();
    o.mode = mode;
    const auto lines = said_by([&] {
      Service service(o);
      service.seal();
      service.seal();
    });
    ASSERT_EQ(lines.size(), 1u) << ::testing::PrintToString(lines);
    const std::string named =
        mode == Mode::jit ? "mode = 'jit' (from option)" : "mode = 'warn' (from option)";
    for (const std::string& part :
         {std::string("seal() changes nothing"), named, std::string("or set it to sealed")})
      EXPECT_NE(lines[0].find(part), std::string::npos) << '\'' << part << "' in: " << lines[0];
  }
}

TEST_F(Seal, AModeFromTheEnvironmentOrAFileWasTold) {
  Options o = options();
  o.ignore_environment = false;
  const auto config = tree_.write("config/kiln/config.toml", "mode = \"jit\"\n");
  const auto lines = said_by([&] {
    ::setenv("XDG_CONFIG_HOME", tree_.at("config").c_str(), 1);
    Service by_file(o);
    by_file.seal();
    ::setenv("KILN_MODE", "jit", 1);
    Service by_environment(o);
    by_environment.seal();
  });
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("mode = 'jit' (from " + config + ')'), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("mode = 'jit' (from KILN_MODE)"), std::string::npos) << lines[1];
}

TEST_F(Seal, SaysNothingWhereItDoesWhatItSays) {
  Options sealed = options();
  sealed.mode = Mode::sealed;
  EXPECT_EQ(said_by([&] {
              Service by_default(options()), told(sealed);
              by_default.seal();
              told.seal();
            }),
            std::vector<std::string>{});
}

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
  o.mode = Mode::jit;
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
