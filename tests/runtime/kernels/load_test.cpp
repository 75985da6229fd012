// Steps 1 and 7 of the path (docs/architecture.md) on the fake driver: opening, loading, identity of handles,
// two devices, the end of the driver.
#include <type_traits>

#include "runtime/fake_runtime.hpp"

namespace kiln::testing {
namespace {

// A value that only converts to a parameter's value, such as a stream or a null pointer, must not compile.
static_assert(std::is_constructible_v<Value, bool> && std::is_constructible_v<Value, int> &&
              std::is_constructible_v<Value, const char*>);
static_assert(!std::is_constructible_v<Value, void*> && !std::is_constructible_v<Value, std::nullptr_t>);
static_assert(!std::is_constructible_v<Value, double> && !std::is_constructible_v<Value, CUstream>);

class Open : public FakeRuntime {};
class Load : public FakeRuntime {
 protected:
  /// The kernel of a specialisation such as "rms_norm T=bf16 ...", with all eight
  /// parameters given by position.
  static Kernel by_position(const KernelTemplate& t, const std::string& specialization) {
    std::vector<std::string> v;
    for (auto at = specialization.find('='); at != std::string::npos; at = specialization.find('=', at + 1))
      v.push_back(specialization.substr(at + 1, specialization.find(' ', at) - at - 1));
    if (v.size() != 8) throw std::runtime_error(specialization);
    return t.get(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]);
  }
};

TEST_F(Open, WithoutACurrentContextSaysWhatToCall) {
  ASSERT_EQ(cu().cuCtxSetCurrent(nullptr), 0);
  Service service(options());
  expect_error(Errc::no_driver, {"no CUDA context is current", "cudaSetDevice"},
               [&] { service.open("rms_norm"); });
  EXPECT_EQ(kiln_fake_calls("cuInit"), 1u) << "only the test's own";
  EXPECT_EQ(kiln_fake_calls("cuDevicePrimaryCtxRetain"), static_cast<unsigned long>(kDevices))
      << "only the test's own";
}

TEST_F(Open, BeforeInitialisationNamesTheDriversError) {
  kiln_fake_fail("cuCtxGetCurrent", 3, 0, 1);
  Service service(options());
  expect_error(Errc::no_driver, {"CUDA_ERROR_NOT_INITIALIZED"}, [&] { service.open("rms_norm"); });
}

TEST_F(Open, RefusesAnOrdinalOtherThanTheCurrentContexts) {
  Service service(options());
  expect_error(Errc::invalid_argument, {"device 1", "device 0"}, [&] {
    service.open("rms_norm", Device{1, {}});
  });
  EXPECT_NO_THROW(service.open("rms_norm", Device{0, {}}));
  use(1);
  EXPECT_NO_THROW(service.open("rms_norm", Device{1, {}}));
}

TEST_F(Open, AnUnknownTemplateNamesTheNearest) {
  Service service(options());
  expect_error(Errc::unknown_template, {"rms_nrom", "rms_norm"}, [&] { service.open("rms_nrom"); });
}

TEST_F(Open, ChangesNeitherContextNorDevice) {
  Service service(options());
  service.open("rms_norm").get(Dtype::bf16, 4096);
  toolchain::CUcontext current = nullptr;
  ASSERT_EQ(cu().cuCtxGetCurrent(&current), 0);
  EXPECT_EQ(current, contexts_[0]);
  EXPECT_EQ(kiln_fake_calls("cuCtxSetCurrent"), 1u) << "only the test's own";
}

TEST_F(Open, WithoutADeviceCompilesAndRefusesToLoad) {
  Service service(options());
  const KernelTemplate t = service.open("rms_norm", Device::none());
  EXPECT_EQ(t.compile(Dtype::bf16, 4096).arch(), "sm_90a");
  expect_error(Errc::no_driver, {"rms_norm", "without a device", "compile()"},
               [&] { t.get(Dtype::bf16, 4096); });
}

TEST_F(Load, CompilesLoadsAndMakesTheFunctionResident) {
  Service service(options());
  const KernelTemplate rms_norm = service.open("rms_norm");
  const Kernel k = rms_norm.get(Dtype::bf16, 4096);
  ASSERT_TRUE(k);
  EXPECT_NE(k.function(), nullptr);
  EXPECT_EQ(kiln_fake_calls("cuLibraryLoadData"), 1u);
  EXPECT_EQ(kiln_fake_calls("cuFuncLoad"), 1u) << "so that the first launch loads nothing";
  const kiln_kernel_info info = k.info();
  EXPECT_EQ(info.outcome, KILN_OUTCOME_COMPILED);
  EXPECT_EQ(std::strlen(info.key), 64u);
  EXPECT_EQ(std::string(info.specialization).rfind("rms_norm T=bf16 H=4096 ", 0), 0u) << info.specialization;
  EXPECT_GT(info.registers, 0u);
  EXPECT_EQ(info.argument_count, 10u);
  const Stats stats = service.stats();
  EXPECT_EQ(stats.compiles, 1u);
  EXPECT_EQ(stats.loads, 1u);
  EXPECT_GT(stats.device_bytes, 1000u);
}

TEST_F(Load, AnOldDriverWithoutFuncLoadIsFine) {
  // The entry point is optional. The table is bound once per process, so this test can
  // only make the call fail.
  kiln_fake_fail("cuFuncLoad", 801, 0, 1);  // CUDA_ERROR_NOT_SUPPORTED
  Service service(options());
  const KernelTemplate t = service.open("rms_norm");
  expect_error(Errc::driver, {"cuFuncLoad", "801"}, [&] { t.get(Dtype::bf16, 4096); });
  EXPECT_TRUE(t.get(Dtype::bf16, 4096));
}

TEST_F(Load, ASecondGetIsTheSameHandleAndMakesNoDriverCall) {
  Service service(options());
  const KernelTemplate rms_norm = service.open("rms_norm");
  const Kernel first = rms_norm.get(Dtype::bf16, 4096);
  Kernel second;
  EXPECT_EQ(driver_calls([&] { second = rms_norm.get(Dtype::bf16, 4096); }), 0u);
  EXPECT_EQ(second.handle(), first.handle());
  EXPECT_EQ(second.function(), first.function());
}

TEST_F(Load, EverySpellingOfOneSpecialisationIsOneHandle) {
  Service service(options());
  const KernelTemplate rms_norm = service.open("rms_norm");
  const Kernel k = rms_norm.get(Dtype::bf16, 4096);
  const auto calls = driver_calls([&] {
    EXPECT_EQ(rms_norm.get({{"T", "bf16"}, {"H", 4096}}).handle(), k.handle());
    EXPECT_EQ(rms_norm.get({{"H", 4096}, {"T", Dtype::bf16}}).handle(), k.handle()) << "names have no order";
    EXPECT_EQ(rms_norm.get("bf16", "4096").handle(), k.handle()) << "text for every kind";
    EXPECT_EQ(rms_norm.get(Dtype::bf16, 4096L, false).handle(), k.handle());
    EXPECT_EQ(rms_norm.get(Dtype::bf16, 4096, Value(), Value(), Value(), Value(), Value(), Value()).handle(),
              k.handle())
        << "unset";
    EXPECT_EQ(by_position(rms_norm, k.info().specialization).handle(), k.handle()) << "defaults spelled out";
    EXPECT_EQ(service.open("rms_norm").get(Dtype::bf16, 4096).handle(), k.handle()) << "opened again";
  });
  EXPECT_LE(calls, 16u) << "open asks the driver, get does not";
  EXPECT_EQ(service.stats().compiles, 1u);
  EXPECT_EQ(service.stats().loads, 1u);
  EXPECT_NE(rms_norm.get(Dtype::f16, 4096).handle(), k.handle());
}

TEST_F(Load, TryGetIsFalseBeforeAndTheKernelAfter) {
  Service service(options());
  const KernelTemplate rms_norm = service.open("rms_norm");
  EXPECT_EQ(driver_calls([&] { EXPECT_FALSE(rms_norm.try_get(Dtype::bf16, 4096)); }), 0u);
  EXPECT_EQ(service.stats().compiles, 0u);
  const Kernel k = rms_norm.get(Dtype::bf16, 4096);
  EXPECT_EQ(rms_norm.try_get(Dtype::bf16, 4096).handle(), k.handle());
  EXPECT_FALSE(rms_norm.try_get(Dtype::f16, 4096));
  EXPECT_FALSE(rms_norm.try_get(Dtype::bf16, "nonsense"));
  EXPECT_FALSE(rms_norm.try_get(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)) << "more than the template has";
}

TEST_F(Load, BadParametersAreRefusedWithoutADriverCallOrACompile) {
  Service service(options());
  const KernelTemplate t = service.open("rms_norm");
  const auto calls = driver_calls([&] {
    expect_error(Errc::invalid_value, {"rms_norm", "'T'", "e4m3", "bf16"}, [&] { t.get(Dtype::e4m3, 4096); });
    expect_error(Errc::unknown_parameter, {"rms_norm", "HH", "H"}, [&] {
      t.get({{"T", "bf16"}, {"HH", 4096}});
    });
    expect_error(Errc::unknown_parameter, {"rms_norm", "'H'"}, [&] { t.get(Dtype::bf16); });
    expect_error(Errc::requirement, {"VEC = 8 must divide H = 4100"}, [&] {
      t.get({{"T", "bf16"}, {"H", 4100}, {"VEC", 8}});
    });
    expect_error(Errc::invalid_argument, {"rms_norm", "9"}, [&] { t.get(0, 1, 2, 3, 4, 5, 6, 7, 8); });
  });
  EXPECT_EQ(calls, 0u);
  EXPECT_EQ(service.stats().compiles + service.stats().compile_failures, 0u);
}

TEST_F(Load, TheSecondServiceLoadsFromDiskWhatTheFirstCompiled) {
  std::string key;
  {
    Service service(options());
    key = service.open("rms_norm").get(Dtype::bf16, 4096).info().key;
  }
  EXPECT_EQ(kiln_fake_live("library"), 0u) << "the service unloads its kernels";
  Service service(options());
  const Kernel k = service.open("rms_norm").get(Dtype::bf16, 4096);
  EXPECT_EQ(k.info().outcome, KILN_OUTCOME_DISK);
  EXPECT_EQ(k.info().key, key);
  EXPECT_EQ(service.stats().compiles, 0u);
}

TEST_F(Load, EachContextHasItsOwnFunctionAndTheImageIsCompiledOnce) {
  Service service(options());
  const KernelTemplate on_first = service.open("rms_norm");
  const Kernel a = on_first.get(Dtype::bf16, 4096);
  use(1);
  expect_error(Errc::no_driver, {"rms_norm", "another context"}, [&] { on_first.get(Dtype::f16, 4096); });
  EXPECT_EQ(on_first.get(Dtype::bf16, 4096).handle(), a.handle()) << "a ready kernel asks nobody";
  const Kernel b = service.open("rms_norm").get(Dtype::bf16, 4096);
  EXPECT_NE(a.function(), b.function());
  EXPECT_EQ(b.info().outcome, KILN_OUTCOME_MEMORY);
  EXPECT_EQ(service.stats().compiles, 1u);
  EXPECT_EQ(service.stats().loads, 2u);
  RmsNormCall()(b);
  expect_error(Errc::driver, {"CUDA_ERROR_INVALID_CONTEXT", "launching rms_norm"}, [&] { RmsNormCall()(a); });
}

TEST_F(Load, ACompileErrorCarriesLogAndSpecialisation) {
  Service service(options());
  add(service, "broken", "[launch]\ngrid = [\"1\"]\nblock = [\"1\"]\n",
      "template <int N> __global__ void f() { oops; }");
  const KernelTemplate t = service.open("broken");
  for (int i = 0; i < 2; ++i) {
    try {
      t.get(5);
      FAIL();
    } catch (const CompileError& error) {
      EXPECT_EQ(error.code(), Errc::compile_failed);
      EXPECT_EQ(error.specialization(), "broken N=5");
      EXPECT_NE(error.log().find("oops"), std::string::npos) << error.log();
      EXPECT_NE(error.options().find("-std=c++17"), std::string::npos) << error.options();
      EXPECT_NE(std::string(error.what()).find("sm_90a"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(service.stats().compile_failures, 1u);
  EXPECT_EQ(service.stats().remembered_failures, 1u);
  EXPECT_EQ(kiln_fake_calls("cuLibraryLoadData"), 0u);
}

TEST_F(Load, AServiceOutlivesTheDriver) {
  Service service(options());
  service.open("rms_norm").get(Dtype::bf16, 4096);
  kiln_fake_deinitialize();
  // Unloading now fails with CUDA_ERROR_DEINITIALIZED, in ~Service, at the end of this scope.
}

TEST_F(Load, AServiceOutlivesTheContext) {
  Service service(options());
  service.open("rms_norm").get(Dtype::bf16, 4096);
  kiln_fake_reset();  // makes every handle invalid
}

TEST_F(Load, AStaticServiceOutlivesTheDriverAtExit) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";  // a new process
  EXPECT_EXIT(
      {
        static Service service(options());
        service.open("rms_norm").get(Dtype::bf16, 4096);
        std::error_code busy;  // publishing may still create files in the directory
        do {
          std::filesystem::remove_all(tree_.path(), busy);
        } while (busy);
        std::atexit(kiln_fake_deinitialize);  // runs before ~Service, as the driver's own exit handler may
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(Load, ReadyKernelsOfAForkedChildAreStillFound) {
  Service service(options());
  const KernelTemplate t = service.open("rms_norm");
  const Kernel k = t.get(Dtype::bf16, 4096);
  EXPECT_EXIT(::_exit(t.get(Dtype::bf16, 4096).handle() == k.handle() ? 0 : 1), ::testing::ExitedWithCode(0),
              "");
}

}  // namespace
}  // namespace kiln::testing
