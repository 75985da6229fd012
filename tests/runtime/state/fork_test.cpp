// A service in forked children: a child never waits for anything that a parent's thread held at the fork.
#include <atomic>
#include <cstdio>
#include <functional>
#include <thread>

#include "base/log.hpp"
#include "compile/worker_fixture.hpp"
#include "kiln/error.hpp"
#include "runtime/service_fixture.hpp"
#include "support/child.hpp"

namespace kiln::testing {
namespace {

using namespace std::chrono_literals;
using runtime::Service;

int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

/// Threads that repeat their work until this object is destroyed.
class Hammers {
 public:
  explicit Hammers(std::vector<std::function<void(int)>> works) {
    for (auto& work : works) {
      threads_.emplace_back([this, work = std::move(work)] {
        for (int turn = 0; !stop_; ++turn) {
          try {
            work(turn);
            ++turns_;
          } catch (const std::exception& error) {
            if (++failures_ == 1) std::printf("in the parent: %s\n", error.what());
          }
        }
      });
    }
  }
  ~Hammers() {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
  }
  long turns() const noexcept { return turns_; }
  long failures() const noexcept { return failures_; }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<long> turns_{0}, failures_{0};
  std::vector<std::thread> threads_;
};

class ForkTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    for (const char* name : {"scale", "other"}) {
      std::string manifest = small_manifest(name);
      manifest.replace(manifest.find("1024]"), 5, "100000000]");  // values of N for any number of kernels
      tree_.write("t/" + std::string(name) + ".toml", manifest);
    }
    tree_.write("t/other.cu", small_source("#include \"a.h\"\n", "out[i] = T(N - VALUE);"));
  }
  void TearDown() override { base::set_log_sink({}); }
  Options recording() const {
    Options o = options();
    o.record = tree_.at("record");
    return o;
  }
  static bool is_hit(Outcome outcome) { return outcome == Outcome::memory || outcome == Outcome::disk; }
};

/// Uses the inherited service in a child. Returns the child's exit status; 0 is success.
int use(Service& service, int fork, bool compiles) {
  if (!std::freopen("/dev/null", "w", stderr)) return 90;  // the child's log
  const auto arch = "sm_90a";
  auto compile = [&](const char* name, int n) {
    return service.open(name, KILN_DEVICE_NONE, arch).compile(std::vector<Value>{Dtype::f32, n}).outcome;
  };
  base::warn("fork " + std::to_string(fork));
  for (const char* name : {"scale", "other"})
    if (const Outcome outcome = compile(name, 7); outcome != Outcome::memory && outcome != Outcome::disk)
      return 1;
  if (compile("scale", 7) != Outcome::memory) return 2;
  if (compiles && compile("other", 10'000'000 + fork) != Outcome::compiled) return 3;
  if (service.catalog().names().size() < 2) return 4;
  if (service.core().path().compiler().workers().view().running != 0) return 5;
  if (service.core().state().counters.memory_hits == 0) return 6;
  service.core().path().host_lock().board();
  service.core().misses().plan();
  service.used();
  return service.core().path().flush(base::Deadline::after(30s)) ? 0 : 7;
}

TEST_F(ForkTest, ChildrenOfABusyServiceWaitForNothingOfTheirParents) {
  if (cannot_fork_busy()) GTEST_SKIP() << cannot_fork_busy();
  const int forks = setting("KILN_SOAK_FORKS", 200);
  auto service = std::make_unique<Service>(recording());
  std::atomic<long> lines{0};
  base::set_log_sink([&](base::Level, std::string_view) { ++lines; });
  for (const char* name : {"scale", "other"}) compile(*service, name, {Dtype::f32, 7});
  ASSERT_TRUE(service->core().path().flush(base::Deadline::after(30s)));
  int children_that_compiled = 0;
  long turns = 0;
  const auto hit = [&](const char* name) {
    if (!is_hit(compile(*service, name, {Dtype::f32, 7}).outcome)) throw std::runtime_error("no hit");
  };
  {
    const Hammers hammers({
        [&](int) { hit("scale"); },
        [&](int) { hit("other"); },
        [&](int turn) {
          compile(*service, "scale", {Dtype::f32, 1000 + turn});
        },  // real compiles, one after another
        [&](int) {
          const auto unit =
              source::instantiate(service->catalog().open("other"),
                                  source::resolve(service->catalog().open("other")->manifest,
                                                  std::vector<Value>{Dtype::f32, 7}, base::Arch{90}));
          service->core().path().look(unit);
          service->core().path().compiler().workers().view();
          service->core().path().host_lock().board();
          service->used();
        },
        [&](int turn) {
          std::this_thread::sleep_for(20us);
          base::warn("a line");
          base::warn_once("fork test " + std::to_string(turn % 100), "a line");
        },
    });
    for (int i = 0; i < forks; ++i) {
      const bool compiles = i % 20 == 10, ends = i % 4 == 1;
      ASSERT_EQ(in_child([&] {
                  const int result = use(*service, i, compiles);
                  if (ends) service.reset();
                  return result;
                }),
                0)
          << "child of fork " << i << "; 142: it was stuck";
      children_that_compiled += compiles;
    }
    EXPECT_EQ(hammers.failures(), 0) << "the parent is unharmed";
    turns = hammers.turns();
  }
  std::printf(
      "FIGURES %d forks, %d children compiled; meanwhile %ld turns and %llu compiles in the parent, %ld "
      "lines\n",
      forks, children_that_compiled, turns,
      static_cast<unsigned long long>(service->core().state().counters.compiles), lines.load());
  EXPECT_GT(service->core().state().counters.compiles, 2u);
  EXPECT_TRUE(service->core().path().flush(base::Deadline::after(30s)));
  EXPECT_TRUE(service->core().state().stores.writable()->verify().damaged.empty());
  Service fresh(options());
  EXPECT_EQ(compile(fresh, "other", {Dtype::f32, 10'000'000 + 10}).outcome, Outcome::disk)
      << "what a child compiled is in the store";
}

/// The fork happens before or while the service first makes its toolkit, places, layers and flights.
TEST_F(ForkTest, AForkInTheMiddleOfAServicesFirstUseLeavesTheChildItsOwn) {
  if (cannot_fork_busy()) GTEST_SKIP() << cannot_fork_busy();
  const int forks = setting("KILN_SOAK_FORKS", 200) / 2;
  compile(*std::make_unique<Service>(recording()), "scale", {Dtype::f32, 7});
  compile(*std::make_unique<Service>(recording()), "other", {Dtype::f32, 7});
  for (int i = 0; i < forks; ++i) {
    auto service = std::make_unique<Service>(recording());
    std::atomic<bool> begun{false};
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (const char* name : {"scale", "other"}) {
      threads.emplace_back([&, name] {
        begun = true;
        failures += !is_hit(compile(*service, name, {Dtype::f32, 7}).outcome);
      });
    }
    while (!begun) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(i % 10 * 50));
    const int child = in_child([&] {
      const int result = use(*service, i, false);
      service.reset();
      return result;
    });
    for (std::thread& t : threads) t.join();
    ASSERT_EQ(child, 0) << "child of fork " << i << "; 142: it was stuck";
    ASSERT_EQ(failures, 0);
  }
}

/// With 1000 spaces the parent's threads are nearly always in the middle of a list of them, or of a search.
TEST_F(ForkTest, AChildHasTheSpacesOfItsParentAndOpensItsOwn) {
  if (cannot_fork_busy()) GTEST_SKIP() << cannot_fork_busy();
  constexpr std::size_t kSpaces = 1000;
  auto service = std::make_unique<Service>(options());
  const auto space = [](std::size_t i) { return runtime::BlobSpaceOptions{"s", std::to_string(i)}; };
  std::vector<runtime::BlobSpace*> opened;
  for (std::size_t i = 0; i < kSpaces; ++i) opened.push_back(&service->blobs().open(space(i)));
  const Hammers hammers(
      {[&](int) { service->blobs().all(); }, [&](int) { service->blobs().open(space(0)); }});
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(in_child([&] {
                if (service->blobs().all().size() != kSpaces) return 1;
                if (&service->blobs().open(space(kSpaces / 2)) != opened[kSpaces / 2]) return 2;
                service->blobs().open(space(kSpaces));
                if (service->blobs().all().size() != kSpaces + 1) return 3;
                service->used();
                service.reset();
                return 0;
              }),
              0)
        << "child of fork " << i << "; 142: it was stuck";
  }
  EXPECT_EQ(service->blobs().all().size(), kSpaces);
  EXPECT_EQ(hammers.failures(), 0);
}

TEST_F(ForkTest, AChildThatEndsItsParentsServiceWaitsForItsOwnCompiles) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << cannot_fork_busy();
#endif
  write_endless();
  auto service = std::make_unique<Service>(options());
  compile(*service, "scale", {Dtype::f32, 7});
  EXPECT_EQ(
      in_child([&] {
        auto& endless = service->open("endless", KILN_DEVICE_NONE, "sm_90a");
        const auto unit = source::instantiate(
            endless.shared_origin(),
            source::resolve(endless.origin().manifest, std::vector<Value>{Dtype::f32, 7}, base::Arch{90}));
        runtime::ObtainOptions impatient;
        impatient.deadline = base::Deadline::after(300ms);
        try {
          service->core().path().obtain(unit, impatient);
          return 1;
        } catch (const Error& error) {
          if (error.code() != Errc::deadline) return 2;
        }
        if (!soon(100, [&] { return service->core().path().compiler().workers().view().running == 1; }))
          return 3;
        service.reset();
        std::string children;
        if (FILE* file = std::fopen("/proc/thread-self/children", "r")) {
          if (std::fgetc(file) != EOF) children = "some";
          std::fclose(file);
        }
        return children.empty() ? 0 : 4;
      }),
      0);
  EXPECT_EQ(compile(*service, "scale", {Dtype::f32, 8}).outcome, Outcome::compiled) << "the parent goes on";
}

}  // namespace
}  // namespace kiln::testing
