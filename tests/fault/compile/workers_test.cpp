// Compile workers under pressure: a small memory cgroup, and engines that share a host.
#include <filesystem>
#include <fstream>

#include "compile/pool/machine.hpp"
#include "kiln/error.hpp"
#include "support/places.hpp"
#include "tests/runtime/service_fixture.hpp"
#include "tests/support/nightly.hpp"
#include "tests/support/processes.hpp"

namespace kiln::fault {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using compile::Urgency;
using runtime::Service;

/// A memory cgroup for this test (v1 or v2), removed with the test.
class MemoryGroup {
 public:
  explicit MemoryGroup(std::uint64_t limit) {
    const std::string name = "kiln-test-" + std::to_string(::getpid());
    for (const char* root : {"/sys/fs/cgroup/memory/", "/sys/fs/cgroup/"}) {
      const fs::path directory = root + name;
      std::error_code error;
      if (!fs::create_directory(directory, error)) continue;
      unified_ = !fs::exists(directory / "memory.limit_in_bytes");
      std::ofstream(directory / (unified_ ? "memory.max" : "memory.limit_in_bytes")) << limit;
      if (number(directory / (unified_ ? "memory.max" : "memory.limit_in_bytes")) == limit) {
        directory_ = directory;
        return;
      }
      fs::remove(directory, error);
    }
  }
  ~MemoryGroup() {
    for (int i = 0; i < 50 && exists() && ::rmdir(directory_.c_str()) != 0; ++i)
      std::this_thread::sleep_for(100ms);  // waits until the last worker has left
  }
  bool exists() const { return !directory_.empty(); }
  void enter() const { std::ofstream(directory_ / "cgroup.procs") << ::getpid(); }
  std::uint64_t peak() const {
    return number(directory_ / (unified_ ? "memory.peak" : "memory.max_usage_in_bytes"));
  }
  std::uint64_t kills() const {
    std::ifstream in(directory_ / (unified_ ? "memory.events" : "memory.oom_control"));
    std::string word;
    for (std::uint64_t value; in >> word >> value;)
      if (word == "oom_kill") return value;
    return 0;
  }

 private:
  static std::uint64_t number(const fs::path& file) {
    std::uint64_t value = 0;
    std::ifstream(file) >> value;
    return value;
  }
  fs::path directory_;
  bool unified_ = false;
};

class WorkersUnderPressure : public kiln::testing::ServiceTest {
 protected:
  static runtime::Obtained ask(Service& service, const std::string& name, const std::vector<Value>& values,
                               Urgency urgency = Urgency::caller) {
    auto& opened = service.open(name, KILN_DEVICE_NONE, "sm_90a");
    runtime::ObtainOptions options;
    options.urgency = urgency;
    return service.core().path().obtain(
        source::instantiate(opened.shared_origin(),
                            source::resolve(opened.origin().manifest, values, base::Arch{90})),
        options);
  }
  Options with_fixtures() const {
    Options o = options();
    o.template_path += ":" + std::string(places::kSourceDirectory) + "/tests/fixtures/templates";
    o.include_path = std::string(places::kSourceDirectory) + "/templates";
    return o;
  }
};

/// For the full test, set KILN_SOAK_KEYS=200 KILN_SOAK_LIMIT_MIB=4096.
TEST_F(WorkersUnderPressure, ManyColdKeysOfAHeavyTemplateStayWithinASmallCgroup) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is more than the cgroup allows";
#endif
  KILN_NIGHTLY_ONLY();  // half a minute of both cores
  const int keys = setting("KILN_SOAK_KEYS", 12);
  const auto limit = static_cast<std::uint64_t>(setting("KILN_SOAK_LIMIT_MIB", 900)) << 20;
  const MemoryGroup group(limit);
  if (!group.exists()) GTEST_SKIP() << "no memory cgroup can be made here";
  tree_.write("t/eater.toml", kiln::testing::small_manifest("eater"));
  tree_.write("t/eater.cu",
              kiln::testing::small_source("template <int N, int M> struct F { static const int v = F<N - 1, "
                                          "2 * M>::v + F<N - 1, 2 * M + 1>::v; };\n"
                                          "template <int M> struct F<0, M> { static const int v = M; };\n",
                                          "out[i] = T(N + F<26, 1>::v);"));
  struct Seen {
    std::atomic<int> served, failed, eaten, spawned, killed, next_works;
  };
  const Shared<Seen> seen;
  Options o = with_fixtures();
  o.jobs = 16;
  o.compile_deadline_s = 120;
  Children children;
  children.start([&] {
    group.enter();
    Service service(o);
    std::atomic<int> next{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 16; ++t) {
      threads.emplace_back([&] {
        for (int i; (i = next++) < keys;) {
          try {
            ask(service, "cub_block_sum", {Dtype::bf16, i + 1, 256});
            ++seen->served;
          } catch (const std::exception& error) {
            ++seen->failed;
            std::fprintf(stderr, "%s\n", error.what());
          }
        }
      });
    }
    std::thread eater([&] {  // allocates all that it can while the others compile
      try {
        ask(service, "eater", {Dtype::f32, 7});
      } catch (const CompileError& error) {
        if (std::string(error.what()).find("memory") != std::string::npos)
          ++seen->eaten;
        else
          std::fprintf(stderr, "%s\n", error.what());
      }
    });
    for (std::thread& t : threads) t.join();
    eater.join();
    if (ask(service, "scale", {Dtype::f32, 3}).outcome == Outcome::compiled) ++seen->next_works;
    const auto view = service.core().path().compiler().workers().view();
    seen->spawned = static_cast<int>(view.spawned), seen->killed = static_cast<int>(view.killed_for_memory);
    return 0;
  });
  EXPECT_EQ(children.wait(), std::vector<int>{0}) << "the host lives";
  EXPECT_EQ(seen->served, keys);
  EXPECT_EQ(seen->failed, 0);
  EXPECT_EQ(seen->eaten, 1) << "the one that wants all memory is told so";
  EXPECT_EQ(seen->next_works, 1);
  std::printf(
      "FIGURES %d CUB keys, 16 jobs, %llu MiB: peak %llu MiB, %d workers, %d killed by us, %llu by the "
      "kernel\n",
      keys, static_cast<unsigned long long>(limit >> 20), static_cast<unsigned long long>(group.peak() >> 20),
      seen->spawned.load(), seen->killed.load(), static_cast<unsigned long long>(group.kills()));
}

TEST_F(WorkersUnderPressure, ACallerIsServedWhileAnotherProcessPrewarms) {
  struct Seen {
    std::atomic<int> prewarmed, at_answer{-1};
  };
  const Shared<Seen> seen;
  Options o = options();
  o.jobs = 2 * std::max(1, compile::Machine().cores());
  const int plan = 30 * o.jobs;
  Children children;
  children.start([&] {
    Service service(o);
    std::atomic<int> next{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < o.jobs; ++t) {
      threads.emplace_back([&] {
        for (int i; (i = next++) < plan;) {
          ask(service, "scale", {Dtype::f32, i % 1024 + 1}, Urgency::ahead);
          ++seen->prewarmed;
        }
      });
    }
    for (std::thread& t : threads) t.join();
    return 0;
  });
  children.start([&] {
    Service service(o);
    if (!eventually([&] { return seen->prewarmed >= 4; })) return 1;
    ask(service, "scale", {Dtype::i32, 7});
    seen->at_answer = seen->prewarmed.load();
    return 0;
  });
  EXPECT_EQ(children.wait(), (std::vector<int>{0, 0}));
  EXPECT_EQ(seen->prewarmed, plan);
  EXPECT_LT(seen->at_answer, plan / 2) << "he did not wait for the plan's end";
  std::printf("FIGURES a caller was answered when %d of a plan's %d were done (he came at 4)\n",
              seen->at_answer.load(), plan);
}

TEST_F(WorkersUnderPressure, TwoEnginesShareTheHostsCores) {
  constexpr int kKeys = 40;
  const Shared<std::array<std::atomic<int>, 2>> done;
  const Shared<std::atomic<int>> others_at_first_end;
  const Shared<Barrier> barrier;
  *others_at_first_end = -1;
  Options o = options();
  o.jobs = 2 * std::max(1, compile::Machine().cores());
  Children children;
  for (int p = 0; p < 2; ++p) {
    children.start([&, p] {
      Service service(o);
      barrier->wait(2);
      std::atomic<int> next{0};
      std::vector<std::thread> threads;
      for (int t = 0; t < o.jobs; ++t) {
        threads.emplace_back([&] {
          for (int i; (i = next++) < kKeys;) {
            ask(service, "scale", {p ? Dtype::f32 : Dtype::i32, i + 1});
            ++(*done)[static_cast<std::size_t>(p)];
          }
        });
      }
      for (std::thread& t : threads) t.join();
      int none = -1;
      others_at_first_end->compare_exchange_strong(none, (*done)[static_cast<std::size_t>(1 - p)].load());
      return 0;
    });
  }
  EXPECT_EQ(children.wait(), (std::vector<int>{0, 0}));
  EXPECT_GE(others_at_first_end->load(), kKeys / 4) << "neither starves";
  std::printf("FIGURES two engines of %d keys each: when the first was done, the other had %d\n", kKeys,
              others_at_first_end->load());
}

}  // namespace
}  // namespace kiln::fault
