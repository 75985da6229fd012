// A released scope takes its kernels with it, drops the work that is under way for it,
// and touches nothing else.
#include "runtime/core_fixture.hpp"

namespace kiln::testing {
namespace {

class Scopes : public Core {
 protected:
  /// Waits until no background thread of kiln's is left, so that nothing more can happen.
  static bool quiet() {
    return comes_true([] { return threads_named("kiln-behind") == 0; });
  }
};

TEST_F(Scopes, ReleaseUnloadsAndItsTemplatesLoadAgain) {
  Service service(options());
  small(service, "s");
  Scope scope = service.scope();
  const KernelTemplate t = scope.open("s");
  const std::size_t bytes = t.compile(1).cubin().size();
  t.get(1);
  EXPECT_EQ(kiln_fake_live("library"), 1u);
  EXPECT_EQ(service.stats().device_bytes, bytes);
  scope.release();
  EXPECT_EQ(kiln_fake_live("library"), 0u);
  EXPECT_EQ(service.stats().device_bytes, 0u);
  EXPECT_FALSE(t.try_get(1));
  const Kernel again = t.get(1);
  again(nullptr, device_pointer<float>(), 1);
  EXPECT_EQ(t.try_get(1).handle(), again.handle());
  EXPECT_EQ(service.stats().compiles, 1u) << "the image is still in memory";
  EXPECT_EQ(service.stats().loads, 2u);
  EXPECT_EQ(service.stats().device_bytes, bytes);
}

TEST_F(Scopes, DestructionUnloadsAndTheServicesKernelsKeepTheirAddresses) {
  Service service(options());
  small(service, "s");
  const KernelTemplate own = service.open("s");
  const Kernel kept = own.get(1);
  const CUfunction function = kept.function();
  const CUstream stream = make_stream();
  ASSERT_EQ(cu().cuStreamBeginCapture(stream, 0), 0);
  kept(stream, device_pointer<float>(), 1);
  toolchain::CUgraph graph = nullptr;
  ASSERT_EQ(cu().cuStreamEndCapture(stream, &graph), 0);
  {
    Scope scope = service.scope();
    const Kernel other = scope.open("s").get(1);
    EXPECT_NE(other.handle(), kept.handle());
    EXPECT_NE(other.function(), function);
    EXPECT_EQ(kiln_fake_live("library"), 2u);
    scope.release();
    EXPECT_TRUE(scope.open("s").get(1));
  }
  EXPECT_EQ(kiln_fake_live("library"), 1u);
  EXPECT_EQ(own.get(1).handle(), kept.handle());
  EXPECT_EQ(kept.function(), function);
  toolchain::CUgraphExec exec = nullptr;
  ASSERT_EQ(cu().cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
  EXPECT_EQ(cu().cuGraphLaunch(exec, stream), 0);
}

TEST_F(Scopes, TwoLoadSeparatelyAndCompileOnce) {
  Service service(options());
  small(service, "s");
  Scope a = service.scope(), b = service.scope();
  const Kernel in_a = a.open("s").get(1), in_b = b.open("s").get(1);
  EXPECT_NE(in_a.function(), in_b.function());
  EXPECT_EQ(service.stats().compiles, 1u);
  EXPECT_EQ(service.stats().loads, 2u);
  a.release();
  EXPECT_EQ(b.open("s").get(1).handle(), in_b.handle());
  in_b(nullptr, device_pointer<float>(), 1);
  EXPECT_EQ(kiln_fake_live("library"), 1u);
}

TEST_F(Scopes, AReleaseDropsAGetAsyncThatStillCompiles) {
  Service service(held());
  small(service, "s");
  Scope scope = service.scope();
  const KernelTemplate t = scope.open("s");
  const Future f = t.get_async(1);
  EXPECT_TRUE(comes_true([] { return threads_named("kiln-behind") == 1; }));
  scope.release();
  let_compile();
  expect_error(Errc::not_ready, {"s N=1", "released"}, [&] { f.get(); });
  EXPECT_TRUE(quiet());
  EXPECT_EQ(kiln_fake_live("library"), 0u);
  EXPECT_EQ(service.stats().device_bytes, 0u);
  EXPECT_FALSE(t.try_get(1));
  EXPECT_TRUE(t.get(1)) << "who asks after the release gets it";
  EXPECT_EQ(service.stats().compiles, 1u) << "the image was kept";
}

TEST_F(Scopes, AReleaseDropsAGetAsyncThatHasNotBegun) {
  Options o = held();
  o.jobs = 1;
  Service service(o);
  small(service, "s");
  Scope scope = service.scope();
  const KernelTemplate t = scope.open("s");
  for (int n = 1; n <= 20; ++n) t.prefetch(n);
  scope.release();
  let_compile();
  EXPECT_TRUE(quiet());
  EXPECT_EQ(kiln_fake_live("library"), 0u);
  EXPECT_EQ(service.stats().device_bytes, 0u);
  EXPECT_LT(service.stats().compiles, 20u) << "what had not begun is not compiled for nobody";
}

TEST_F(Scopes, APrefetchAfterAReleaseIsNotLostToOneFromBefore) {
  Service service(held());
  small(service, "s");
  Scope scope = service.scope();
  const KernelTemplate t = scope.open("s");
  t.prefetch(1);
  EXPECT_TRUE(comes_true([] { return threads_named("kiln-behind") == 1; }));
  scope.release();
  t.prefetch(1);
  let_compile();
  EXPECT_TRUE(comes_true([&] { return static_cast<bool>(t.try_get(1)); }));
  EXPECT_TRUE(quiet());
  EXPECT_EQ(kiln_fake_live("library"), 1u);
}

TEST_F(Scopes, AGetAfterAReleaseDoesNotWaitForALoadFromBefore) {
  Service service(options());
  small(service, "s");
  Scope scope = service.scope();
  const KernelTemplate t = scope.open("s");
  t.compile(1);
  kiln_gate_shut(1);
  const Future before = t.get_async(1);
  EXPECT_TRUE(comes_true([] { return kiln_gate_waiting() == 1; }));
  scope.release();
  const Future after = t.get_async(1);
  EXPECT_TRUE(comes_true([] { return kiln_gate_waiting() == 2; })) << "a load of its own";
  kiln_gate_shut(0);
  expect_error(Errc::not_ready, {"released"}, [&] { before.get(); });
  const Kernel made = after.get();
  EXPECT_EQ(made.handle(), t.try_get(1).handle());
  EXPECT_TRUE(quiet());
  EXPECT_EQ(kiln_fake_live("library"), 1u) << "what the earlier one had loaded is unloaded again";
  EXPECT_EQ(service.stats().device_bytes, t.compile(1).cubin().size());
}

TEST_F(Scopes, DestructionDoesNotWaitForACompileThatIsUnderWay) {
  Service service(held());
  small(service, "s");
  std::vector<Future> futures;
  {
    Scope scope = service.scope();
    const KernelTemplate t = scope.open("s");
    futures.push_back(t.get_async(1));
    t.prefetch(2);
    EXPECT_TRUE(comes_true([] { return threads_named("kiln-behind") == 2; }));
  }  // a destructor that waited for the compiles would never return: they are held back
  let_compile();
  expect_error(Errc::not_ready, {"s N=1", "released"}, [&] { futures[0].get(); });
  EXPECT_TRUE(quiet());
  EXPECT_EQ(kiln_fake_live("library"), 0u);
  EXPECT_EQ(service.stats().device_bytes, 0u);
}

TEST_F(Scopes, DestructionDropsALoadThatIsUnderWay) {
  Service service(options());
  small(service, "s");
  std::vector<Future> futures;
  {
    Scope scope = service.scope();
    const KernelTemplate t = scope.open("s");
    t.compile(1);
    kiln_gate_shut(1);
    futures.push_back(t.get_async(1));
    EXPECT_TRUE(comes_true([] { return kiln_gate_waiting() == 1; }));
  }
  kiln_gate_shut(0);
  expect_error(Errc::not_ready, {"s N=1", "released"}, [&] { futures[0].get(); });
  EXPECT_TRUE(quiet());
  EXPECT_EQ(kiln_fake_live("library"), 0u);
  EXPECT_EQ(service.stats().device_bytes, 0u);
}

TEST_F(Scopes, APreparationOfAScopeThatGoesLoadsNothingAfterIt) {
  Service service(held());
  small(service, "s");
  std::vector<Preparation> preparations;
  {
    const Scope scope = service.scope();
    preparations.push_back(service.prepare(scope, "[[prewarm]]\ntemplate = \"s\"\nN = [1, 2, 3, 4]\n"));
  }
  let_compile();
  expect_error(Errc::not_ready, {"s N=", "released"}, [&] { preparations[0].wait(); });
  const Progress progress = preparations[0].progress();
  EXPECT_EQ(progress.done, 4u);
  EXPECT_EQ(progress.failed, 4u);
  EXPECT_TRUE(quiet());
  EXPECT_EQ(kiln_fake_live("library"), 0u);
  EXPECT_EQ(service.stats().device_bytes, 0u);
}

TEST_F(Scopes, PreparedKernelsBelongToTheScopeTheyWerePreparedFor) {
  Service service(options());
  small(service, "s");
  Scope scope = service.scope();
  service.prepare(scope, "[[prewarm]]\ntemplate = \"s\"\nN = [1, 2]\n").wait();
  const KernelTemplate t = scope.open("s");
  EXPECT_TRUE(t.try_get(1));
  EXPECT_TRUE(t.try_get(2));
  EXPECT_FALSE(service.open("s").try_get(1));
  scope.release();
  EXPECT_EQ(kiln_fake_live("library"), 0u);
}

TEST_F(Scopes, AServiceThatGoesFirstEndsWhatScopesHadBegun) {
  std::vector<Future> futures;
  {
    Service service(held());
    small(service, "s");
    {
      Scope scope = service.scope();
      scope.open("s").prefetch(1);
      EXPECT_TRUE(comes_true([] { return threads_named("kiln-behind") == 1; }));
    }
  }
  EXPECT_EQ(kiln_fake_live("library"), 0u);
  EXPECT_TRUE(comes_true([] { return threads_named("kiln-behind") == 0; })) << "done, it leaves on its own";
}

}  // namespace
}  // namespace kiln::testing
