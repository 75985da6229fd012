// The driver refuses a call while a kernel is loaded. The error names call, error and kernel; nothing
// leaks, and the next get works.
#include "cache/store/store.hpp"
#include "compile/key/key.hpp"
#include "runtime/fake_runtime.hpp"

namespace kiln::testing {
namespace {

class LoadFault : public FakeRuntime, public ::testing::WithParamInterface<const char*> {};

TEST_P(LoadFault, NamesCallAndErrorLeaksNothingAndTheNextGetWorks) {
  Service service(options());
  const KernelTemplate t = service.open("rms_norm");
  kiln_fake_fail(GetParam(), 2, 0, 1);
  expect_error(Errc::driver, {GetParam(), "CUDA_ERROR_OUT_OF_MEMORY", "loading rms_norm T=bf16 H=4096"},
               [&] { t.get(Dtype::bf16, 4096); });
  EXPECT_EQ(kiln_fake_live("library"), 0u);
  EXPECT_EQ(service.stats().loads, 0u);
  EXPECT_EQ(service.stats().device_bytes, 0u);
  const Kernel k = t.get(Dtype::bf16, 4096);
  EXPECT_EQ(k.info().outcome, KILN_OUTCOME_MEMORY) << "the image was kept";
  RmsNormCall()(k);
  EXPECT_EQ(service.stats().compiles, 1u);
  EXPECT_EQ(service.stats().loads, 1u);
  EXPECT_EQ(kiln_fake_live("library"), 1u);
}

INSTANTIATE_TEST_SUITE_P(Calls, LoadFault,
                         ::testing::Values("cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction",
                                           "cuFuncLoad"),
                         [](const auto& test) { return std::string(test.param); });

class CaptureMode : public FakeRuntime {};

TEST_F(CaptureMode, OfTheThreadIsWhatItWasAlsoWhenLoadingFailsOrTheExchangeDoes) {
  const auto now = [&] {  // the thread's capture mode; 0: global
    int mode = 0;
    EXPECT_EQ(cu().cuThreadExchangeStreamCaptureMode(&mode), 0);
    return mode;
  };
  Service service(options());
  const KernelTemplate t = service.open("rms_norm");
  kiln_fake_fail("cuKernelGetFunction", 2, 0, 1);
  EXPECT_THROW(t.get(Dtype::bf16, 4096), Error);
  EXPECT_EQ(now(), 0);
  kiln_fake_fail("cuThreadExchangeStreamCaptureMode", 1, 0, 1);
  EXPECT_TRUE(t.get(Dtype::bf16, 4096));
  EXPECT_EQ(now(), 0) << "what was not exchanged is not put back";
}

class LaunchFault : public FakeRuntime {};

TEST_F(LaunchFault, NamesTheErrorAndTheKernelStaysUsable) {
  Service service(options());
  const Kernel k = service.open("rms_norm").get(Dtype::bf16, 4096);
  kiln_fake_fail("cuLaunchKernelEx", 719, 0, 1);  // CUDA_ERROR_LAUNCH_FAILED, unknown to the fake driver
  expect_error(Errc::driver, {"cuLaunchKernelEx", "719", "launching rms_norm T=bf16 H=4096"},
               [&] { RmsNormCall()(k); });
  kiln_fake_fail("cuLaunchKernelEx", 2, 0, 1);
  expect_error(Errc::driver, {"cuLaunchKernelEx", "CUDA_ERROR_OUT_OF_MEMORY"}, [&] { RmsNormCall()(k); });
  RmsNormCall()(k);
  EXPECT_EQ(kiln_fake_launches(), 1u);
}

TEST_F(LaunchFault, WithoutACurrentContextNamesTheDriversError) {
  Service service(options());
  const Kernel k = service.open("rms_norm").get(Dtype::bf16, 4096);
  ASSERT_EQ(cu().cuCtxSetCurrent(nullptr), 0);
  expect_error(Errc::driver, {"cuLaunchKernelEx", "launching rms_norm", "CUDA_ERROR_INVALID_CONTEXT"},
               [&] { RmsNormCall()(k); });
}

class RefusedImage : public FakeRuntime {
 protected:
  /// Publishes rms_norm T=bf16 H=4096 as other toolchains made it, one record for each image, youngest last.
  void publish_foreign(const std::vector<std::string>& images) {
    Key own;
    cache::Record record;
    {
      Options o = options();
      o.cache_dir = tree_.at("builder");
      Service service(o);
      own = *Key::from_hex(service.open("rms_norm", Device::none()).compile(Dtype::bf16, 4096).key());
    }
    {
      const auto built = cache::Store::open({.directory = tree_.at("builder")});
      record = *built->peek(own, base::Deadline::never());
    }
    good_image_ = record.image;
    const auto store = cache::Store::open({.directory = tree_.at("cache")});
    for (std::size_t i = 0; i < images.size(); ++i) {
      cache::Record foreign = record;
      foreign.image = images[i] == "good" ? record.image : images[i];
      std::uint8_t& first = foreign.key.toolchain.bytes[0];
      first = static_cast<std::uint8_t>(first + i + 1);
      ASSERT_EQ(store->put(foreign).put, cache::Put::stored);
      keys_.push_back(foreign.key.hex());
    }
  }
  Options any() const {
    Options o = options();
    o.toolchain = "any";
    return o;
  }
  std::string good_image_;
  std::vector<std::string> keys_;
};

TEST_F(RefusedImage, OfAForeignToolchainIsServedWhenTheDriverTakesIt) {
  publish_foreign({"good"});
  Service service(any());
  const Kernel k = service.open("rms_norm").get(Dtype::bf16, 4096);
  EXPECT_EQ(k.info().outcome, KILN_OUTCOME_DISK);
  EXPECT_EQ(k.info().key, keys_[0]);
  EXPECT_EQ(service.stats().foreign_toolchain, 1u);
  EXPECT_EQ(service.stats().compiles, 0u);
}

TEST_F(RefusedImage, OfAForeignToolchainIsRejectedAndTheOwnIsCompiled) {
  publish_foreign({"not an image at all, and long enough to be looked at as one by whoever reads headers"});
  Service service(any());
  const Kernel k = service.open("rms_norm").get(Dtype::bf16, 4096);
  EXPECT_EQ(k.info().outcome, KILN_OUTCOME_COMPILED);
  EXPECT_EQ(service.stats().compiles, 1u);
  EXPECT_EQ(service.stats().loads, 1u);
  RmsNormCall()(k);
}

TEST_F(RefusedImage, OfOneForeignToolchainLeadsToTheNext) {
  const std::string bad =
      "not an image at all, and long enough to be looked at as one by whoever reads headers";
  publish_foreign({bad, "good", bad});
  Service service(any());
  const Kernel k = service.open("rms_norm").get(Dtype::bf16, 4096);
  EXPECT_EQ(k.info().outcome, KILN_OUTCOME_DISK);
  EXPECT_EQ(k.info().key, keys_[1]);
  EXPECT_EQ(service.stats().compiles, 0u);
}

TEST_F(RefusedImage, OfOurOwnFreshCompileIsAnErrorThatNamesTheDriver) {
  kiln_fake_fail("cuLibraryLoadData", 209, 0, -1);
  Service service(options());
  const KernelTemplate t = service.open("rms_norm");
  expect_error(Errc::driver, {"refuses the image of rms_norm", "CUDA_ERROR_NO_BINARY_FOR_GPU", "sm_90a"},
               [&] { t.get(Dtype::bf16, 4096); });
  EXPECT_EQ(service.stats().loads, 0u);
}

TEST_F(RefusedImage, ReportedOnlyWhenTheFunctionIsTakenIsRejectedToo) {
  publish_foreign({"good"});
  kiln_fake_fail("cuKernelGetFunction", 200, 0, 1);  // with lazy loading the driver reports a bad image here
  Service service(any());
  EXPECT_EQ(service.open("rms_norm").get(Dtype::bf16, 4096).info().outcome, KILN_OUTCOME_COMPILED);
  EXPECT_EQ(kiln_fake_live("library"), 1u);
}

}  // namespace
}  // namespace kiln::testing
