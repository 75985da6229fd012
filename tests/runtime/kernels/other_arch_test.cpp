// A device without an image of its own arch is served by one that was made for its family.
#include <sys/stat.h>

#include <thread>

#include "base/deadline.hpp"
#include "cache/trust/secret_key.hpp"
#include "runtime/fake_runtime.hpp"
#include "tests/fleet/redis_server.hpp"

namespace kiln::testing {
namespace {

const bool kOnSm103 = ::setenv("KILN_FAKE_ARCH", "103", 1) == 0;  // read by the fake driver's first call

class OtherArch : public FakeRuntime {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kOnSm103);
    if (!real_toolkit().has_compiler()) GTEST_SKIP() << "no NVRTC on this machine";
    FakeRuntime::SetUp();
  }
  static void add(Service& service, const std::string& arch) {
    service.add_template(
        "format = 1\n[template]\nname = \"f\"\ninstantiate = \"f<{N}>\"\narch = " + arch +
            "\n[param.N]\nkind = \"int\"\nrange = [1, 9]\n[[arg]]\nname = \"out\"\ntype = \"ptr<f32>\"\n"
            "access = \"write\"\n[launch]\ngrid = [\"1\"]\nblock = [\"64\"]\n",
        "template <int N> __global__ void f(float* out) { *out = N; }\n");
  }
  /// Stores the image of f N=n for an arch.
  void store(const std::string& arch, int n = 3, const std::string& allowed = kFamily) {
    Service builder(options());
    add(builder, allowed);
    builder.open("f", Device::none(arch)).compile(n);
  }
  static std::string arch_of(const Kernel& kernel) { return std::string(kernel.info().arch); }

  static constexpr const char *kFamily = "{ min = \"sm_80\", features = \"family\" }",
                              *kBase = "{ min = \"sm_80\", features = \"base\" }";
};

TEST_F(OtherArch, ASealedProcessIsServedByTheImageOfTheFamily) {
  store("sm_100f");
  Options o = options();
  o.mode = Mode::sealed;
  Service service(o);
  add(service, kFamily);
  const KernelTemplate f = service.open("f");
  const Kernel kernel = f.get(3);
  EXPECT_EQ(arch_of(kernel), "sm_100f");
  EXPECT_EQ(std::string(kernel.info().specialization), "f N=3");
  kernel(nullptr, device_pointer<float>());
  EXPECT_EQ(service.stats().other_arch, 1u);
  EXPECT_EQ(service.stats().compiles, 0u);
  EXPECT_EQ(f.get(3).handle(), kernel.handle());
  expect_error(Errc::not_ready, {"f N=4", "sm_103a"}, [&] { f.get(4); });
  EXPECT_EQ(service.adopt(), 0u) << "a sealed process makes nothing better";
}

TEST_F(OtherArch, TheBestImageIsTaken) {
  store("sm_100_base", 3, kBase);
  store("sm_100f", 3, kBase);
  Options o = options();
  o.mode = Mode::sealed;
  {
    Service service(o);
    add(service, kBase);
    EXPECT_EQ(arch_of(service.open("f").get(3)), "sm_100f");
  }
  store("sm_103a", 3, kBase);
  Service service(o);
  add(service, kBase);
  EXPECT_EQ(arch_of(service.open("f").get(3)), "sm_103a");
  EXPECT_EQ(service.stats().other_arch, 0u);
}

TEST_F(OtherArch, AnImageThatTheManifestNoLongerAllowsIsNotTaken) {
  store("sm_100_base", 3, kBase);
  Options o = options();
  o.mode = Mode::sealed;
  Service service(o);
  add(service, kFamily);
  expect_error(Errc::not_ready, {"f N=3"}, [&] { service.open("f").get(3); });
}

TEST_F(OtherArch, ABetterImageIsMadeBehindAndTakenByAdopt) {
  store("sm_100f");
  Service service(options());
  add(service, kFamily);
  const KernelTemplate f = service.open("f");
  const Kernel first = f.get(3);
  EXPECT_EQ(arch_of(first), "sm_100f");
  EXPECT_EQ(f.get({{"N", "3"}}).handle(), first.handle());
  std::uint64_t adopted = 0;
  EXPECT_TRUE(base::poll_until(base::Deadline::after(std::chrono::seconds(100)),
                               [&] { return (adopted = service.adopt()) != 0; }));
  EXPECT_EQ(adopted, 1u);
  EXPECT_EQ(service.stats().compiles, 1u);
  const Kernel better = f.get(3);
  EXPECT_EQ(arch_of(better), "sm_103a");
  EXPECT_EQ(f.get({{"N", "3"}}).handle(), better.handle()) << "every way of saying it";
  EXPECT_EQ(service.adopt(), 0u);
  first(nullptr, device_pointer<float>());  // a graph may hold the first kernel, so it stays loaded
  better(nullptr, device_pointer<float>());
  EXPECT_EQ(service.stats().adopted, 1u);
}

TEST_F(OtherArch, AFamilyPicksTheBetterKernelOnceItIsAdopted) {
  const auto add_family = [](Service& service) {
    service.add_template(
        std::string("format = 1\n[template]\nname = \"g\"\ninstantiate = \"g<{N}>\"\narch = ") + kFamily +
            "\n[param.N]\nkind = \"int\"\nvalues = [4, 8]\n[family]\nby = \"rows\"\nparameter = \"N\"\n"
            "[[arg]]\nname = \"rows\"\ntype = \"i32\"\n[launch]\ngrid = [\"N\"]\nblock = [\"64\"]\n",
        "template <int N> __global__ void g(int rows) {}\n");
  };
  {
    Service builder(options());
    add_family(builder);
    builder.open("g", Device::none("sm_100f")).compile(4);
  }
  Service service(options());
  add_family(service);
  const KernelTemplate g = service.open("g");
  const Family family = g.get_family();
  const Kernel first = family.member(4);
  EXPECT_EQ(arch_of(first), "sm_100f");
  EXPECT_EQ(arch_of(family.member(5)), "sm_103a");
  EXPECT_TRUE(base::poll_until(base::Deadline::after(std::chrono::seconds(100)),
                               [&] { return service.adopt() != 0; }));
  EXPECT_EQ(arch_of(family.member(4)), "sm_103a");
  EXPECT_EQ(family.member(4).handle(), g.get(4).handle());
  EXPECT_EQ(g.get_family().handle(), family.handle()) << "the handle stays";
  family(nullptr, 3);
  EXPECT_EQ(last_launch().grid[0], 4u);
}

TEST_F(OtherArch, TheNextProcessGetsTheBetterImageFromTheStore) {
  store("sm_100f");
  {
    Service service(options());
    add(service, kFamily);
    service.open("f").get(3);
    EXPECT_TRUE(base::poll_until(base::Deadline::after(std::chrono::seconds(100)),
                                 [&] { return service.stats().puts == 1; }));
  }
  Service service(options());
  add(service, kFamily);
  EXPECT_EQ(arch_of(service.open("f").get(3)), "sm_103a");
  EXPECT_EQ(service.stats().compiles, 0u);
}

TEST_F(OtherArch, WithAutomaticAdoptionNobodyHasToAsk) {
  store("sm_100f");
  Options o = options();
  o.adopt = Adopt::automatically;
  Service service(o);
  add(service, kFamily);
  const KernelTemplate f = service.open("f");
  f.get(3);
  EXPECT_TRUE(base::poll_until(base::Deadline::after(std::chrono::seconds(100)),
                               [&] { return arch_of(f.get(3)) == "sm_103a"; }));
}

TEST_F(OtherArch, AReleaseMeanwhileDropsTheBetterImage) {
  store("sm_100f");
  Service service(options());
  add(service, kFamily);
  Scope scope = service.scope();
  {
    const KernelTemplate f = scope.open("f");
    EXPECT_EQ(arch_of(f.get(3)), "sm_100f");
    scope.release();
  }
  EXPECT_TRUE(base::poll_until(base::Deadline::after(std::chrono::seconds(100)),
                               [&] { return service.stats().puts == 1; }));
  EXPECT_EQ(arch_of(scope.open("f").get(3)), "sm_103a");
}

TEST_F(OtherArch, AReleaseMayComeWhileTheBetterImageFailsToCompile) {
  const auto with_family_only = [](Service& service) {
    service.add_template(
        "format = 1\n[template]\nname = \"g\"\ninstantiate = \"g<{N}>\"\n"
        "arch = { min = \"sm_80\", features = \"family\" }\n[param.N]\nkind = \"int\"\nrange = [1, 9]\n"
        "[launch]\ngrid = [\"1\"]\nblock = [\"64\"]\n",
        "#ifdef __CUDA_ARCH_FEAT_SM103_ALL\n#error not on this arch\n#endif\n"
        "template <int N> __global__ void g() {}\n");
  };
  {
    Service builder(options());
    with_family_only(builder);
    builder.open("g", Device::none("sm_100f")).compile(3);
  }
  Service service(options());
  with_family_only(service);
  Scope scope = service.scope();
  EXPECT_EQ(arch_of(scope.open("g").get(3)), "sm_100f");
  scope.release();
  EXPECT_TRUE(base::poll_until(base::Deadline::after(std::chrono::seconds(100)),
                               [&] { return service.stats().compile_failures == 1; }));
  EXPECT_EQ(arch_of(scope.open("g").get(3)), "sm_100f") << "it goes on serving";
}

TEST_F(OtherArch, PrefetchesAndReleasesMayOvertakeEachOther) {
  store("sm_100f", 1);
  Service service(options());
  add(service, kFamily);
  Scope scope = service.scope();
  const KernelTemplate f = scope.open("f");
  for (int i = 0; i < 40; ++i) {
    for (int n = 1; n <= 3; ++n) f.prefetch(n);
    std::this_thread::sleep_for(std::chrono::microseconds(200 * (i % 5)));
    scope.release();
  }
  EXPECT_FALSE(arch_of(f.get(1)).empty());
}

TEST_F(OtherArch, AGenericKernelThatServesForGoodIsReplacedToo) {
  store("sm_100f");
  Service service(options());
  add(service, kFamily);
  service.add_template(
      "format = 1\n[template]\nname = \"fast\"\ninstantiate = \"fast<{N}>\"\narch = { only = [\"sm_90a\"] }\n"
      "fallback = \"f\"\n[param.N]\nkind = \"int\"\nrange = [1, 9]\n[[arg]]\nname = \"out\"\n"
      "type = \"ptr<f32>\"\naccess = \"write\"\n[launch]\ngrid = [\"1\"]\nblock = [\"64\"]\n",
      "template <int N> __global__ void fast(float* out) { *out = N; }\n");
  const KernelTemplate fast = service.open("fast");
  EXPECT_EQ(arch_of(fast.get_or_fallback(3)), "sm_100f");
  EXPECT_TRUE(base::poll_until(base::Deadline::after(std::chrono::seconds(100)),
                               [&] { return service.adopt() != 0; }));
  EXPECT_EQ(arch_of(fast.get_or_fallback(3)), "sm_103a");
}

TEST_F(OtherArch, WithoutAnyImageTheDevicesOwnArchIsCompiled) {
  Service service(options());
  add(service, kFamily);
  EXPECT_EQ(arch_of(service.open("f").get(3)), "sm_103a");
  EXPECT_EQ(service.stats().other_arch, 0u);
}

TEST_F(OtherArch, ANodeThatMayNotCompileTakesTheFamilysImageFromTheTier) {
  if (!RedisServer::installed()) GTEST_SKIP() << "no redis-server on this machine";
  const RedisServer server;
  tree_.write("fleet.key", trust::SecretKey::generate().file().bytes());
  ::chmod(tree_.at("fleet.key").c_str(), 0600);
  const auto node = [&](const std::string& name) {
    Options o = options();
    o.cache_dir = tree_.at(name);
    o.remote = server.patient_url(), o.remote_mode = "fleet", o.remote_sign = tree_.at("fleet.key");
    return o;
  };
  {
    Service builder(node("a"));
    add(builder, kFamily);
    builder.open("f", Device::none("sm_100f")).compile(3);
  }
  Options o = node("b");
  o.mode = Mode::sealed, o.remote_sealed = "ask";
  {
    Service service(o);
    add(service, kFamily);
    const Kernel kernel = service.open("f").get(3);
    EXPECT_EQ(arch_of(kernel), "sm_100f");
    EXPECT_EQ(kernel.info().outcome, KILN_OUTCOME_REMOTE);
    EXPECT_EQ(service.stats().other_arch, 1u);
    expect_error(Errc::not_ready, {"f N=4", "sm_103a"}, [&] { service.open("f").get(4); });
    EXPECT_LE(service.stats().remote_reported, 2u) << "the exact images are missed, and nothing else";
  }
  Service jit(node("c"));
  add(jit, kFamily);
  EXPECT_EQ(arch_of(jit.open("f").get(3)), "sm_103a") << "made for the whole fleet";
}

}  // namespace
}  // namespace kiln::testing
