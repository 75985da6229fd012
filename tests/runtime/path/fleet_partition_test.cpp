// An engine is cut off from the fleet's server. Every kernel is served, the stats show the outage,
// and the tier is used again without a restart. KILN_SOAK_PARTITION_S=60 makes a long outage with
// recovery, and prints figures.
#include <atomic>
#include <thread>

#include "cache/fleet/net/breaker.hpp"
#include "runtime/path/fleet_fixture.hpp"
#include "support/network_namespace.hpp"
#include "support/time_limit.hpp"
#include "tests/fleet/redis_server.hpp"

namespace kiln::testing {
namespace {

using namespace std::chrono_literals;

const char* name_of(std::int32_t state) {
  constexpr const char* kNames[] = {"unused", "works", "probing", "broken"};
  return kNames[state];
}

class EnginePartition : public FleetTest {
 protected:
  void SetUp() override {
    if (!RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
    KILN_NEEDS_NETWORK();
    FleetTest::SetUp();
    if (IsSkipped()) return;
    network_.emplace();
    servers_.emplace(*network_, 254);
    a_.emplace(*network_, 1), b_.emplace(*network_, 2);
    const auto inside = servers_->inside();
    server_.emplace(
        std::vector<std::string>{"--bind", servers_->address(), "127.0.0.1", "--protected-mode", "no"});
  }
  std::string url() const { return "redis://" + servers_->address() + ':' + std::to_string(server_->port()); }

  /// Compiles a new specialisation. Returns the milliseconds beyond the compile.
  double one_more(Service& service) {
    const auto start = base::Clock::now();
    const auto got = compile(service, "scale", {Dtype::f32, ++last_});
    const double ms = std::chrono::duration<double, std::milli>(base::Clock::now() - start).count();
    EXPECT_EQ(got.outcome, Outcome::compiled);
    return ms - got.image->facts.compile_ms;
  }
  static void print(const char* when, Delays& delays) {
    std::printf("FIGURES %-34s %3zu kernels, beyond the compile: p50 %6.1f ms, p99 %6.1f ms, most %6.1f ms\n",
                when, delays.ms.size(), delays.at(0.5), delays.p99(), delays.at(1));
  }

  std::optional<Network> network_;
  std::optional<Network::Host> servers_, a_, b_;
  std::optional<RedisServer> server_;
  int last_ = 0;
};

/// Records the changes of the tier's state.
class Watch {
 public:
  explicit Watch(Service& service) : began_(base::Clock::now()) {
    thread_ = std::thread([this, &service] {
      for (std::int32_t last = -1; !over_; std::this_thread::sleep_for(5ms)) {
        kiln_stats stats{};
        service.core().path().fleet().read(stats);
        if (stats.remote_state == last) continue;
        seen_[static_cast<std::size_t>(last = stats.remote_state)] = true;
        std::printf("FIGURES %6.2f s: %s\n",
                    std::chrono::duration<double>(base::Clock::now() - began_).count(), name_of(last));
      }
    });
  }
  ~Watch() {
    over_ = true;
    thread_.join();
  }
  bool seen(std::int32_t state) const { return seen_[static_cast<std::size_t>(state)]; }
  void note(const char* what) const {
    std::printf("FIGURES %6.2f s: %s\n", std::chrono::duration<double>(base::Clock::now() - began_).count(),
                what);
  }

 private:
  const base::Clock::time_point began_;
  std::atomic<bool> over_{false}, seen_[4]{};
  std::thread thread_;
};

TEST_F(EnginePartition, EveryKernelIsServedAndTheTierIsUsedAgain) {
  const char* soak = std::getenv("KILN_SOAK_PARTITION_S");
  const auto length = soak ? std::chrono::seconds(std::atoi(soak)) : 1s;
  const auto pause = soak ? 250ms : 20ms;
  const auto inside = a_->inside();
  Service service(node("a", url()));
  Delays before, during, broken, after;
  Delays asked;
  for (int i = 0; i < (soak ? 100 : 5); ++i) before.ms.push_back(one_more(service));
  ASSERT_TRUE(service.core().path().flush(base::Deadline::after(30s)));
  const kiln_stats well = stats_of(service);
  ASSERT_EQ(well.remote_state, KILN_REMOTE_WORKS);

  Watch watch(service);
  watch.note("cut off");
  a_->unplug();
  const auto heal = base::Deadline::after(length);
  while (!heal.passed() || stats_of(service).remote_state != KILN_REMOTE_BROKEN ||
         stats_of(service).remote_miss_breaker == 0) {
    const std::uint64_t left_alone = stats_of(service).remote_miss_breaker;
    const double ms = one_more(service);
    (stats_of(service).remote_miss_breaker > left_alone ? broken : asked).ms.push_back(ms);
    std::this_thread::sleep_for(pause);
  }
  kiln_stats s = stats_of(service);
  EXPECT_EQ(s.remote_hits + s.remote_puts, well.remote_hits + well.remote_puts);
  EXPECT_GE(s.remote_miss_timeout + s.remote_miss_unreachable, 1u);
  print("before", before), print("cut off, the server is asked", asked), print("cut off, left alone", broken);
  if (soak) {
    EXPECT_LT(std::max(asked.at(1), broken.at(1)), 1500);
  }

  watch.note("healed");
  a_->plug();
  if (!soak) return;  // the breaker needs half a minute to close
  const auto healed = base::Clock::now();
  const std::uint64_t stored = stats_of(service).remote_puts;
  while (stats_of(service).remote_puts == stored && base::Clock::now() - healed < 120s) {
    after.ms.push_back(one_more(service));
    std::this_thread::sleep_for(pause);
  }
  const auto took = base::Clock::now() - healed;
  watch.note("an entry of this node is in the server");
  const fleet::BreakerPolicy policy;
  EXPECT_LT(took, at_most(policy.pause * (1 + policy.jitter) + 5s));
  EXPECT_TRUE(watch.seen(KILN_REMOTE_PROBING));
  print("healed, until it is used again", after);
  after.ms.clear();
  for (int i = 0; i < 20; ++i) after.ms.push_back(one_more(service));
  print("used again", after);
  EXPECT_TRUE(service.core().path().flush(base::Deadline::after(30s)));
  EXPECT_GE(stats_of(service).remote_puts, stored + 20);

  const auto elsewhere = b_->inside();
  Service reads(reader("b", url()));
  EXPECT_EQ(compile(reads, "scale", {Dtype::f32, last_}).outcome, Outcome::remote);
}

}  // namespace
}  // namespace kiln::testing
