// Faults of fallbacks: the generic kernel serves for any fault of the specialised kernel.
#include <sys/stat.h>

#include "runtime/core_fixture.hpp"
#include "support/places.hpp"

namespace kiln::testing {
namespace {

class FallbackFaults : public Core {
 protected:
  static std::string name_of(const Kernel& k) { return k.info().specialization; }
  static void pair(Service& service) {
    small(service, "slow");
    small(service, "fast", "fallback = \"slow\"");
  }
};

TEST_F(FallbackFaults, ASpecialisedOneWhoseFailureIsKnownLeavesTheGenericOne) {
  Service service(options());
  small(service, "slow");
  small(service, "fast", "fallback = \"slow\"", "this_is_not_declared(N);");
  const KernelTemplate t = service.open("fast");
  EXPECT_EQ(name_of(t.get_or_fallback(1)), "slow N=1");
  expect_error(Errc::compile_failed, {"fast N=2"}, [&] { t.get(2); });  // a prefetch would do, too
  EXPECT_NO_THROW(EXPECT_EQ(name_of(t.get_or_fallback(2)), "slow N=2"));
}

TEST_F(FallbackFaults, AfterAReleaseTheGenericOneServesAgain) {
  Told told;
  Options o = options();
  o.on_event = told.listener();
  Service service(o);
  small(service, "slow");
  small(service, "fast", "fallback = \"slow\"", "this_is_not_declared(N);");
  Scope scope = service.scope();
  const KernelTemplate t = scope.open("fast");
  EXPECT_EQ(name_of(t.get_or_fallback(1)), "slow N=1");
  EXPECT_TRUE(comes_true([&] { return told.count(Event::Kind::compile_failed) == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  scope.release();
  EXPECT_NO_THROW(EXPECT_EQ(name_of(t.get_or_fallback(1)), "slow N=1"));
}

TEST_F(FallbackFaults, ADriverThatRefusesTheSpecialisedImageLeavesTheGenericOne) {
  {
    Service builder(options());
    pair(builder);
    builder.open("slow", Device::none()).compile(1);
    builder.open("fast", Device::none()).compile(1);
  }
  Options o = options();
  o.mode = Mode::sealed;
  Service service(o);
  pair(service);
  const KernelTemplate t = service.open("fast");
  service.open("slow").get(1);
  kiln_fake_fail("cuLibraryLoadData", 200, 0, 1);
  EXPECT_NO_THROW(EXPECT_EQ(name_of(t.get_or_fallback(1)), "slow N=1"));
}

TEST_F(FallbackFaults, ARefusedImageIsNotCompiledInTheCallersThread) {
  {
    Service builder(options());
    pair(builder);
    builder.open("slow", Device::none()).compile(1);
    builder.open("fast", Device::none()).compile(1);
  }
  Service service(held());
  pair(service);
  const KernelTemplate t = service.open("fast");
  service.open("slow").get(1);
  kiln_fake_fail("cuLibraryLoadData", 200, 0, 1);
  std::atomic<bool> returned{false};
  std::thread caller([&] {
    cu().cuCtxSetCurrent(contexts_[0]);
    try {
      t.get_or_fallback(1);
    } catch (const std::exception&) {
    }
    returned = true;
  });
  std::this_thread::sleep_for(std::chrono::seconds(3));
  EXPECT_TRUE(returned) << "at once, while the specialised one compiles behind";
  let_compile();
  caller.join();
}

TEST_F(FallbackFaults, ALoadThatIsHeldUpDoesNotKeepAReadyGenericOneAway) {
  {
    Service builder(options());
    pair(builder);
    builder.open("fast", Device::none()).compile(1);
  }
  Service service(options());
  pair(service);
  const KernelTemplate t = service.open("fast");
  service.open("slow").get(1);
  kiln_gate_shut(1);
  const kiln_value one{KILN_VALUE_INTEGER, 0, 1, nullptr};
  kiln_get get{sizeof get, 0.5, nullptr, 0};
  const kiln_kernel* out = nullptr;
  EXPECT_EQ(kiln_template_get_or_fallback(t.handle(), nullptr, &one, 1, &get, &out), KILN_OK)
      << kiln_last_error()->message;
  kiln_gate_shut(0);
}

TEST_F(FallbackFaults, ASpecialisedOneThatCrashedOnceIsTriedAgain) {
  Told told;
  Options o = options();
  {
    Service builder(options());
    small(builder, "slow");
    builder.open("slow", Device::none()).compile(1);
  }
  o.worker = tree_.write("crash.sh", "#!/bin/sh\n[ -e " + tree_.at("go") + " ] || exit 3\nexec " +
                                         std::string(places::kBuildDirectory) + "/kiln-worker \"$@\"\n");
  ::chmod(o.worker.c_str(), 0755);
  o.on_event = told.listener();
  Service service(o);
  pair(service);
  const KernelTemplate t = service.open("fast");
  EXPECT_EQ(name_of(t.get_or_fallback(1)), "slow N=1");
  ASSERT_TRUE(comes_true([&] { return told.count(Event::Kind::compile_failed) >= 1; }));
  let_compile();
  std::uint64_t adopted = 0;
  for (int i = 0; i < 60 && !adopted; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    t.get_or_fallback(1);
    t.get_or_fallback({{"N", 1}});
    adopted = service.adopt();
  }
  EXPECT_EQ(adopted, 1u) << "six seconds after the machine was well again";
}

TEST_F(FallbackFaults, RanksThatRunDifferentKernelsDoNotCompareEqual) {
  Service a(options()), b(options());
  for (Service* s : {&a, &b}) {
    pair(*s);
    s->open("slow").get(1);
  }
  std::string names[2], prints[2];
  int i = 0;
  for (Service* s : {&a, &b}) {
    const KernelTemplate t = s->open("fast");
    // Service a returns its fallback first. Service b loads the specialised kernel, which a has
    // compiled, before its first call.
    if (s == &a) {
      t.get_or_fallback(1);
      ASSERT_TRUE(comes_true([&] { return static_cast<bool>(t.try_get(1)); }));
    } else {
      ASSERT_TRUE(comes_true([&] { return static_cast<bool>(t.get(1)); }));
      t.get_or_fallback(1);
    }
    names[i] = name_of(t.get_or_fallback(1));
    prints[i++] = s->fingerprint();
  }
  ASSERT_NE(names[0], names[1]);
  EXPECT_NE(prints[0], prints[1]);
}

TEST_F(FallbackFaults, OnAnotherArchTheSpecialisedTemplatesDefaultsGoOver) {
  Service service(options());
  small(service, "slow");  // N defaults to 1
  service.add_template(
      "format = 1\n[template]\nname = \"fast\"\nsource = \"fast.cu\"\ninstantiate = \"f<{N}>\"\n"
      "fallback = \"slow\"\narch = { only = [\"sm_100a\"] }\n"
      "[param.N]\nkind = \"int\"\nrange = [1, 100000]\ndefault = 4096\n"
      "[[arg]]\nname = \"out\"\ntype = \"ptr<f32>\"\naccess = \"write\"\n[[arg]]\nname = \"n\"\ntype = "
      "\"i32\"\n"
      "[launch]\ngrid = [\"1\"]\nblock = [\"64\"]\n",
      "template <int N> __global__ void f(float* out, int n) { out[n] = N; }\n");
  const KernelTemplate t = service.open("fast");
  EXPECT_EQ(name_of(t.get_or_fallback()), "slow N=4096");
  const Kernel settled = t.get_or_fallback(7);
  EXPECT_EQ(driver_calls([&] { EXPECT_EQ(t.get_or_fallback(7).handle(), settled.handle()); }), 0u);
}

}  // namespace
}  // namespace kiln::testing
