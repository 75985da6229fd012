// A generic kernel is returned at once while the specialised kernel compiles; the engine says when to change.
#include "runtime/core_fixture.hpp"

namespace kiln::testing {
namespace {

class Fallback : public Core {
 protected:
  /// "fast" falls back on "slow", which takes the same arguments and a parameter of the same name.
  static void pair(Service& service) {
    small(service, "slow");
    small(service, "fast", "fallback = \"slow\"");
  }
  static std::string name_of(const Kernel& k) { return k.info().specialization; }
  /// Waits until the specialised kernel is loaded. get_or_fallback() may still return the generic kernel.
  static bool ready(const KernelTemplate& t, int n) {
    return comes_true([&] { return static_cast<bool>(t.try_get(n)); });
  }
};

TEST_F(Fallback, TheGenericOneIsReturnedAtOnceAndUntilAdopt) {
  Told told;
  Options o = held();
  o.on_event = told.listener();
  {
    Service builder(options());  // puts the generic kernel on disk
    small(builder, "slow");
    builder.open("slow", Device::none()).compile(3);
  }
  Service service(o);
  pair(service);
  const KernelTemplate t = service.open("fast");
  const Kernel generic = t.get_or_fallback(3);
  EXPECT_EQ(name_of(generic), "slow N=3") << "the same parameter by its name";
  generic(nullptr, device_pointer<float>(), 1);
  EXPECT_EQ(service.adopt(), 0u) << "nothing is ready";
  let_compile();
  ASSERT_TRUE(ready(t, 3));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(t.get_or_fallback(3).handle(), generic.handle());
  EXPECT_EQ(t.get_or_fallback({{"N", "3"}}).handle(), generic.handle()) << "another way of saying it";
  EXPECT_EQ(name_of(t.get(3)), "fast N=3") << "get is not about fallbacks";
  EXPECT_EQ(told.count(Event::Kind::adopted), 0u);
  EXPECT_EQ(service.adopt(), 1u);
  EXPECT_EQ(name_of(t.get_or_fallback(3)), "fast N=3");
  EXPECT_EQ(t.get_or_fallback({{"N", "3"}}).handle(), t.get(3).handle()) << "every way of saying it";
  EXPECT_EQ(service.adopt(), 0u);
  const auto adopted = told.of(Event::Kind::adopted);
  ASSERT_EQ(adopted.size(), 1u);
  EXPECT_EQ(adopted[0].specialization, "fast N=3");
  EXPECT_EQ(adopted[0].arch, "sm_90a");
  EXPECT_EQ(service.stats().fallbacks, 1u);
  EXPECT_EQ(service.stats().adopted, 1u);
  EXPECT_EQ(service.stats().compiles, 1u);
  generic(nullptr, device_pointer<float>(), 1);  // the generic kernel stays loaded, as it may be in a graph
}

TEST_F(Fallback, AdoptCountsWhatIsReadyAndLeavesTheRest) {
  Service service(options());
  pair(service);
  const KernelTemplate t = service.open("fast"), slow = service.open("slow");
  for (int n = 1; n <= 3; ++n) slow.get(n);
  for (int n = 1; n <= 3; ++n) EXPECT_EQ(name_of(t.get_or_fallback(n)), "slow N=" + std::to_string(n));
  for (int n = 1; n <= 3; ++n) ASSERT_TRUE(ready(t, n));
  EXPECT_EQ(service.adopt(), 3u);
  for (int n = 1; n <= 3; ++n) EXPECT_EQ(name_of(t.get_or_fallback(n)), "fast N=" + std::to_string(n));
}

TEST_F(Fallback, AutomaticallyItIsTakenOverWhenItIsReady) {
  Told told;
  Options o = held();
  o.adopt = Adopt::automatically;
  o.on_event = told.listener();
  {
    Service builder(options());
    small(builder, "slow");
    builder.open("slow", Device::none()).compile(1);
  }
  Service service(o);
  pair(service);
  const KernelTemplate t = service.open("fast");
  EXPECT_EQ(name_of(t.get_or_fallback(1)), "slow N=1");
  let_compile();
  EXPECT_TRUE(comes_true([&] { return told.count(Event::Kind::adopted) == 1; }));
  EXPECT_EQ(name_of(t.get_or_fallback(1)), "fast N=1");
  EXPECT_EQ(service.adopt(), 0u);
}

TEST_F(Fallback, WhatIsOnDiskOrReadyIsReturnedItself) {
  {
    Service builder(options());
    pair(builder);
    builder.open("fast", Device::none()).compile(1);
  }
  Service service(options());
  pair(service);
  const KernelTemplate t = service.open("fast");
  EXPECT_EQ(name_of(t.get_or_fallback(1)), "fast N=1");
  const Kernel k = t.get(2);
  EXPECT_EQ(t.get_or_fallback(2).handle(), k.handle());
  EXPECT_EQ(service.stats().fallbacks, 0u);
  EXPECT_EQ(service.adopt(), 0u);
}

TEST_F(Fallback, OthersArgumentsAreRefusedAtOpenWithBothSignatures) {
  Service service(options());
  add(service, "other",
      "[[arg]]\nname = \"out\"\ntype = \"ptr<f32>\"\naccess = \"write\"\n[[arg]]\nname = \"m\"\n"
      "type = \"i64\"\n[launch]\ngrid = [\"1\"]\nblock = [\"64\"]\n",
      "template <int N> __global__ void f(float* out, long long m) { *out = m; }");
  small(service, "wrong", "fallback = \"other\"");
  for (int i = 0; i < 2; ++i)
    expect_error(Errc::manifest, {"wrong", "'other'", "out: ptr<f32>, m: i64", "out: ptr<f32>, n: i32"},
                 [&] { service.open("wrong"); });
  small(service, "nowhere", "fallback = \"absent\"");
  expect_error(Errc::unknown_template, {"absent"}, [&] { service.open("nowhere"); });
  small(service, "alone");
  expect_error(Errc::invalid_argument, {"alone", "fallback"},
               [&] { service.open("alone").get_or_fallback(1); });
}

TEST_F(Fallback, WhatTheImageHasBesideItsKernelMustBeThereInBoth) {
  const std::string call =
      "[[arg]]\nname = \"out\"\ntype = \"ptr<i32>\"\n[launch]\ngrid = [1]\nblock = [32]\n";
  const auto manifest = [&](const std::string& name, const std::string& more) {
    return "format = 1\n[template]\nname = \"" + name + "\"\nsource = \"" + name +
           ".cu\"\ninstantiate = \"f\"\n" + more + call;
  };
  const std::string source =
      "__device__ int v;\n__global__ void f(int* out) { *out = v; }\n__global__ void g() {}\n";
  const std::string entry =
      "[[kernel]]\nname = \"g\"\ninstantiate = \"g\"\n[kernel.launch]\ngrid = [1]\nblock = [1]\n";
  const std::string global = "[[global]]\nname = \"v\"\nsymbol = \"v\"\n", constant = "[export]\nE = \"3\"\n";
  for (const auto& [more, part] :
       {std::pair(entry, "has no [[kernel]] 'g' of the same arguments"),
        std::pair(global, "has no [[global]] 'v'"), std::pair(constant, "has no [export] 'E'")}) {
    Service service(options());
    service.add_template(manifest("plain", ""), source);
    service.add_template(manifest("special", "fallback = \"plain\"\n") + more, source);
    expect_error(Errc::manifest, {"fallback = 'plain'", part}, [&] { service.open("special"); });
    Service both(options());
    both.add_template(manifest("plain", "") + more, source);
    both.add_template(manifest("special", "fallback = \"plain\"\n") + more, source);
    EXPECT_NO_THROW(both.open("special"));
  }
}

TEST_F(Fallback, ItsParametersAreToldByNameOrHaveDefaults) {
  const std::string rest =
      "[[arg]]\nname = \"out\"\ntype = \"ptr<f32>\"\naccess = \"write\"\n[[arg]]\nname = \"n\"\n"
      "type = \"i32\"\n[launch]\ngrid = [\"1\"]\nblock = [\"64\"]\n";
  const std::string source =
      "template <int N, int M> __global__ void f(float* out, int n) { out[n] = N * M; }";
  const auto parameter = [](const std::string& name, const std::string& more) {
    return "[param." + name + "]\nkind = \"int\"\nrange = [1, 100]\n" + more;
  };
  const auto manifest = [](const std::string& name, const std::string& more) {
    return "format = 1\n[template]\nname = \"" + name + "\"\nsource = \"" + name +
           ".cu\"\ninstantiate = \"f<{N}, {M}>\"\n" + more;
  };
  Service service(options());
  service.add_template(manifest("generic", "") + parameter("M", "default = 7\n") + parameter("N", "") + rest,
                       source);
  service.add_template(manifest("special", "fallback = \"generic\"\n") + parameter("N", "") +
                           parameter("M", "default = \"N * 2\"\n") + rest,
                       source);
  const KernelTemplate t = service.open("special");
  EXPECT_EQ(name_of(t.get_or_fallback(5)), "generic M=10 N=5") << "resolved, in its own order";
  EXPECT_EQ(name_of(t.get_or_fallback(5, 3)), "generic M=3 N=5");
  service.add_template(manifest("needy", "") + parameter("N", "") + parameter("M", "") + rest, source);
  small(service, "poor", "fallback = \"needy\"");
  expect_error(Errc::manifest, {"poor", "needy", "'M'"}, [&] { service.open("poor"); });
}

TEST_F(Fallback, AnArchTheSpecialisedOneDoesNotKnowUsesTheGenericOne) {
  Service service(options());
  small(service, "slow");
  small(service, "fast", "fallback = \"slow\"\narch = { only = [\"sm_100a\"] }");
  const KernelTemplate t = service.open("fast");
  expect_error(Errc::unsupported_arch, {"fast"}, [&] { t.get(4); });
  EXPECT_EQ(name_of(t.get_or_fallback(4)), "slow N=4");
  EXPECT_EQ(name_of(t.get_or_fallback({{"N", 5}})), "slow N=5");
  EXPECT_EQ(service.adopt(), 0u);
  expect_error(Errc::invalid_value, {"N"}, [&] { t.get_or_fallback(0); });
}

TEST_F(Fallback, SealedTakesTheGenericOneFromMemoryOnlyAndListsTheSpecialisedOne) {
  Options o = options();
  o.mode = Mode::sealed;
  {
    Service builder(options());
    small(builder, "slow");
    builder.open("slow", Device::none()).compile(1);
    builder.open("slow", Device::none()).compile(2);
  }
  Service service(o);
  pair(service);
  const KernelTemplate t = service.open("fast"), slow = service.open("slow");
  const Kernel generic = slow.get(1);
  EXPECT_EQ(name_of(t.get_or_fallback(3 - 1)), "slow N=2") << "from disk, before the seal";
  EXPECT_NE(service.missing().find("template = \"fast\""), std::string::npos) << "it is missing already";
  service.seal();
  EXPECT_EQ(driver_calls([&] { EXPECT_EQ(t.get_or_fallback(1).handle(), generic.handle()); }), 0u);
  expect_error(Errc::not_ready, {"sealed", "slow N=3"}, [&] { t.get_or_fallback(3); });
  const std::string missing = service.missing();
  for (const char* const n : {"1", "2", "3"})
    EXPECT_NE(missing.find(std::string("template = \"fast\"\narch = \"sm_90a\"\nN = \"") + n),
              std::string::npos)
        << n << " in " << missing;
  EXPECT_EQ(service.stats().compiles, 0u);
  EXPECT_EQ(threads_named("kiln-behind"), 0);
  service.prepare("[[prewarm]]\ntemplate = \"fast\"\nN = [1]\n").wait();
  EXPECT_EQ(service.adopt(), 1u);
  EXPECT_EQ(name_of(t.get_or_fallback(1)), "fast N=1");
}

TEST_F(Fallback, ASpecialisedOneThatDoesNotCompileLeavesTheGenericOne) {
  Told told;
  Options o = options();
  o.on_event = told.listener();
  Service service(o);
  small(service, "slow");
  small(service, "fast", "fallback = \"slow\"", "this_is_not_declared(N);");
  const KernelTemplate t = service.open("fast");
  const Kernel generic = t.get_or_fallback(1);
  EXPECT_TRUE(comes_true([&] { return told.count(Event::Kind::compile_failed) == 1; }));
  EXPECT_EQ(service.adopt(), 0u);
  EXPECT_EQ(t.get_or_fallback(1).handle(), generic.handle());
  EXPECT_EQ(t.get_or_fallback({{"N", "1"}}).handle(), generic.handle());
  expect_error(Errc::compile_failed, {"fast N=1"}, [&] { t.get(1); });
  EXPECT_EQ(told.count(Event::Kind::compile_failed), 1u);
}

TEST_F(Fallback, InACaptureOnlyWhatIsReadyIsReturned) {
  Service service(options());
  pair(service);
  const KernelTemplate t = service.open("fast");
  const Kernel generic = service.open("slow").get(1);
  const CaptureScope capturing;
  EXPECT_EQ(t.get_or_fallback(1).handle(), generic.handle());
  expect_error(Errc::not_ready, {"slow N=2", "CaptureScope"}, [&] { t.get_or_fallback(2); });
}

TEST_F(Fallback, AdoptTellsWithoutALockSoThatTheCallbackMayCallKiln) {
  Options o = options();
  Service* told_of = nullptr;
  int called = 0;
  o.on_event = [&](const Event& e) {
    if (e.kind != Event::Kind::adopted) return;
    ++called;
    told_of->fingerprint();
    told_of->adopt();
    told_of->stats();
    const Scope another = told_of->scope();
  };
  Service service(o);
  told_of = &service;
  pair(service);
  const KernelTemplate t = service.open("fast");
  service.open("slow").get(1);
  t.get_or_fallback(1);
  ASSERT_TRUE(ready(t, 1));
  EXPECT_EQ(service.adopt(), 1u);
  EXPECT_EQ(called, 1);
}

TEST_F(Fallback, AReleaseForgetsWhatWasSettled) {
  Service service(options());
  pair(service);
  Scope scope = service.scope();
  const KernelTemplate t = scope.open("fast");
  scope.open("slow").get(1);
  EXPECT_EQ(name_of(t.get_or_fallback(1)), "slow N=1");
  scope.release();
  EXPECT_EQ(service.adopt(), 0u);
  EXPECT_TRUE(comes_true([] { return threads_named("kiln-behind") == 0; }));
  EXPECT_EQ(kiln_fake_live("library"), 0u);
  const std::string again = name_of(t.get_or_fallback(1));
  EXPECT_TRUE(again == "fast N=1" || again == "slow N=1") << again;  // the image may have come meanwhile
}

TEST_F(Fallback, ThreadsThatOpenAtOnceGetItWhole) {
  for (int round = 0; round < 30; ++round) {
    Service service(options());
    pair(service);
    std::vector<KernelTemplate> opened(8, KernelTemplate(nullptr));
    on_threads(8, [&](int i) { opened[static_cast<std::size_t>(i)] = service.open("fast"); });
    CaptureScope nothing_is_made;
    expect_error(Errc::not_ready, {"slow N=1"}, [&] { opened[7].get_or_fallback(1); });
  }
}

TEST_F(Fallback, ManyThreadsThatOpenAndAskSettleOnOne) {
  Service service(options());
  pair(service);
  service.open("slow").get(1);
  std::vector<const kiln_kernel*> handles(16);
  on_threads(16, [&](int i) {
    handles[static_cast<std::size_t>(i)] = service.open("fast").get_or_fallback(1).handle();
  });
  for (const auto* handle : handles) EXPECT_EQ(handle, handles[0]);
  EXPECT_LE(service.stats().fallbacks, 1u);
}

}  // namespace
}  // namespace kiln::testing
