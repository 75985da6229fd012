// Stream capture: a ready kernel launches inside a capture. Another kernel is refused before
// it can break the capture.
#include <thread>

#include "runtime/fake_runtime.hpp"

namespace kiln::testing {
namespace {

class Capture : public FakeRuntime {
 protected:
  void SetUp() override {
    FakeRuntime::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    stream_ = make_stream();
  }
  void begin() { ASSERT_EQ(cu().cuStreamBeginCapture(stream_, 0), 0); }
  /// True when the capture is intact.
  bool end() {
    toolchain::CUgraph graph = nullptr;
    return cu().cuStreamEndCapture(stream_, &graph) == 0;
  }
  CUstream stream_ = nullptr;
};

TEST_F(Capture, AKernelThatIsNotReadyIsRefusedWithOneQuestionToTheDriver) {
  Service service(options());
  const KernelTemplate t = service.open("rms_norm");
  begin();
  const auto asked = kiln_fake_calls("cuStreamIsCapturing");
  const auto calls = driver_calls([&] {
    expect_error(Errc::not_ready, {"rms_norm T=bf16 H=4096", "capturing"},
                 [&] { t.get(stream_, Dtype::bf16, 4096); });
  });
  EXPECT_EQ(calls, 1u);
  EXPECT_EQ(kiln_fake_calls("cuStreamIsCapturing") - asked, 1u);
  EXPECT_EQ(service.stats().compiles, 0u);
  EXPECT_TRUE(end());
  EXPECT_TRUE(t.get(stream_, Dtype::bf16, 4096)) << "after the capture it is made";
}

TEST_F(Capture, AReadyKernelIsReturnedWithoutAskingAndIsCaptured) {
  Service service(options());
  const KernelTemplate t = service.open("rms_norm");
  const Kernel k = t.get(stream_, Dtype::bf16, 4096);
  begin();
  EXPECT_EQ(driver_calls([&] { EXPECT_EQ(t.get(stream_, Dtype::bf16, 4096).handle(), k.handle()); }), 0u);
  RmsNormCall()(k, stream_);
  EXPECT_TRUE(last_launch().captured);
  EXPECT_TRUE(end());
}

TEST_F(Capture, LoadingMeanwhileDoesNotBreakIt) {
  kiln_fake_strict_capture(1);
  Service service(options());
  const KernelTemplate t = service.open("rms_norm");
  begin();
  EXPECT_TRUE(t.get(Dtype::bf16, 4096)) << "the same thread, without telling the stream";
  std::thread other([&] {
    cu().cuCtxSetCurrent(contexts_[0]);
    EXPECT_TRUE(t.get(Dtype::f16, 4096));
    int mode = 0;  // global: the thread's capture mode was restored
    EXPECT_EQ(cu().cuThreadExchangeStreamCaptureMode(&mode), 0);
    EXPECT_EQ(mode, 0);
  });
  other.join();
  EXPECT_TRUE(end());
}

TEST_F(Capture, AFailedLoadRestoresTheThreadsMode) {
  Service service(options());
  const KernelTemplate t = service.open("rms_norm");
  kiln_fake_fail("cuKernelGetFunction", 2, 0, 1);
  EXPECT_THROW(t.get(Dtype::bf16, 4096), Error);
  int mode = 0;
  ASSERT_EQ(cu().cuThreadExchangeStreamCaptureMode(&mode), 0);
  EXPECT_EQ(mode, 0);
}

TEST_F(Capture, AllowingSharedMemoryWhileCapturingDoesNotBreakIt) {
  kiln_fake_strict_capture(1);
  Service service(options());
  add(service, "shared", "[launch]\ngrid = [\"1\"]\nblock = [\"32\"]\nsmem = \"100000\"\n",
      "template <int N> __global__ void f() {}");
  const Kernel k = service.open("shared").get();
  begin();
  k(stream_);
  EXPECT_TRUE(end());
}

TEST_F(Capture, AnInvalidatedCaptureCountsAsCapturing) {
  Service service(options());
  const KernelTemplate t = service.open("rms_norm");
  begin();
  ASSERT_NE(cu().cuStreamSynchronize(stream_), 0);  // invalidates the capture
  expect_error(Errc::not_ready, {"capturing"}, [&] { t.get(stream_, Dtype::bf16, 4096); });
  EXPECT_FALSE(end());
}

TEST_F(Capture, ABadStreamIsTheDriversError) {
  Service service(options());
  const KernelTemplate t = service.open("rms_norm");
  kiln_fake_fail("cuStreamIsCapturing", 400, 0, 1);
  expect_error(Errc::driver, {"cuStreamIsCapturing", "CUDA_ERROR_INVALID_HANDLE"},
               [&] { t.get(stream_, Dtype::bf16, 4096); });
}

}  // namespace
}  // namespace kiln::testing
