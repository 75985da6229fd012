// Many threads make all kinds of calls at once, for a thread sanitizer to watch.
// KILN_SOAK_SECONDS says for how long; 2 by default.
#include <random>

#include "runtime/core_fixture.hpp"

namespace kiln::testing {
namespace {

class Storm : public Core {
 protected:
  static double seconds() {
    const char* text = std::getenv("KILN_SOAK_SECONDS");
    return text ? std::atof(text) : 2;
  }
  static constexpr int kKeys = 6;

  /// Runs a call. It may fail with these codes, as other threads seal, release and let deadlines pass.
  template <class Body>
  static void expected(Body&& body) {
    try {
      body();
    } catch (const Error& error) {
      switch (error.code()) {
        case Errc::deadline:
        case Errc::not_ready:
        case Errc::compile_failed:
          break;
        default:
          ADD_FAILURE() << error.what();
      }
    }
  }

  /// The work of one thread, with its own scopes, on a service that other threads use.
  void work(Service& service, unsigned seed, const std::atomic<bool>& stop) {
    std::minstd_rand random(seed + 1);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const KernelTemplate t = service.open("fast"), bad = service.open("bad");
    Scope scope = service.scope();
    std::vector<Future> futures;
    std::vector<Preparation> preparations;
    while (!stop) {
      const int n = 1 + below(kKeys);
      switch (below(17)) {
        case 0:
          expected([&] { t.get(n)(nullptr, device_pointer<float>(), 1); });
          break;
        case 1:
          expected([&] { t.get(GetOptions(0.001), n); });
          break;
        case 2:
          expected([&] { futures.push_back(t.get_async(n)); });
          break;
        case 3:
          expected([&] { futures.push_back(t.get_async({{"N", n}}, GetOptions(0.002))); });
          break;
        case 4:
          expected([&] { t.prefetch(n); });
          break;
        case 5:
          expected([&] { service.open("fast").get_or_fallback(n); });
          break;
        case 6:
          expected([&] {
            PrepareOptions o;
            o.on_progress = [&service](const Progress&) { service.stats(); };
            o.deadline_s = below(2) ? 0.005 : 0;
            preparations.push_back(service.prepare(
                scope, "[[prewarm]]\ntemplate = \"fast\"\nN = [1, " + std::to_string(1 + n) + "]\n", o));
          });
          break;
        case 7:
          expected([&] { bad.get(n); });
          break;
        case 8:
          service.stats();
          service.missing();
          break;
        case 9:
          EXPECT_EQ(service.fingerprint().size(), 32u);
          break;
        case 10:
          service.adopt();
          break;
        case 11:
          expected([&] { futures.push_back(scope.open("fast").get_async(n)); });
          break;
        case 12:
          expected([&] { scope.open("slow").get(n)(nullptr, device_pointer<float>(), 1); });
          break;
        case 13:
          scope.release();
          break;
        case 14:
          scope = service.scope();
          break;
        case 15:
          if (below(20) == 0) service.seal();
          break;
        default:
          if (t.try_get(n)) t.try_get(n)(nullptr, device_pointer<float>(), 1);
      }
      if (futures.size() > 8) {
        for (const Future& f : futures)
          if (below(2)) expected([&] { f.wait_for(0.001); });
        futures.clear();
      }
      if (preparations.size() > 2) preparations.clear();
    }
  }
};

TEST_F(Storm, OfEverythingLeavesNothingBehind) {
  const auto until = base::Deadline::after(
      std::chrono::duration_cast<base::Clock::duration>(std::chrono::duration<double>(seconds())));
  kiln_fake_quiet(1);
  unsigned rounds = 0;
  std::atomic<std::uint64_t> events{0};
  while (!until.passed() || rounds < 2) {
    Options o = options();
    o.cache_dir = tree_.at("cache" + std::to_string(rounds % 4));  // cold in the first four rounds, then warm
    o.mode = rounds % 3 == 2 ? Mode::sealed : rounds % 3 == 1 ? Mode::warn : Mode::jit;
    o.adopt = rounds % 2 ? Adopt::automatically : Adopt::when_asked;
    o.on_event = [&](const Event&) { ++events; };
    {
      Service service(o);
      small(service, "slow");
      small(service, "fast", "fallback = \"slow\"");
      broken(service, "bad");
      std::atomic<bool> stop{false};
      std::thread clock([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        stop = true;
      });
      on_threads(8, [&](int i) { work(service, rounds * 8 + static_cast<unsigned>(i), stop); });
      clock.join();
    }
    EXPECT_EQ(kiln_fake_live("library"), 0u);
    ++rounds;
  }
  kiln_fake_quiet(0);
  EXPECT_GT(events, 0u);
  RecordProperty("rounds", static_cast<int>(rounds));
}

}  // namespace
}  // namespace kiln::testing
