// The driver refuses a launch or a load. Each error names CUDA_ERROR_*, the failed action, and what to do.
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include "runtime/fake_runtime.hpp"

namespace kiln::testing {
namespace {

class LaunchErrors : public FakeRuntime {
 protected:
  void SetUp() override {
    FakeRuntime::SetUp();
    if (!IsSkipped()) service_.emplace(options());
  }
  void TearDown() override {
    service_.reset();
    FakeRuntime::TearDown();
  }
  Kernel rms_norm() { return service_->open("rms_norm").get(Dtype::bf16, 4096); }
  static toolchain::CUcontext make_context() {
    toolchain::CUcontext out = nullptr;
    EXPECT_EQ(cu().cuCtxCreate(&out, 0, 0), 0);
    return out;
  }
  /// Destroys the context in another thread, so that it stays current in this thread.
  static void destroy_behind_our_back(toolchain::CUcontext context) {
    std::thread([&] { EXPECT_EQ(cu().cuCtxDestroy(context), 0); }).join();
  }
  static void launch_raw(const Kernel& k) {
    RmsNormCall c;
    std::int64_t stride = 4096;
    void* null = nullptr;
    void* parameters[] = {&c.out,        &c.x,   &c.w,  &c.rows, &c.stride_x,
                          &c.stride_out, &c.eps, &null, &stride, &null};
    LaunchConfig config;
    config.block[0] = 256;
    k.launch(config, parameters);
  }
  std::optional<Service> service_;
};

TEST_F(LaunchErrors, WithoutACurrentContextSayWhichToMakeCurrent) {
  const Kernel k = rms_norm();
  ASSERT_EQ(cu().cuCtxSetCurrent(nullptr), 0);
  const std::vector<std::string> parts = {"cuLaunchKernelEx", "launching rms_norm T=bf16 H=4096",
                                          "CUDA_ERROR_INVALID_CONTEXT (201)", "make that one current"};
  expect_error(Errc::driver, parts, [&] { RmsNormCall()(k); });
  expect_error(Errc::driver, parts, [&] { launch_raw(k); });
  use(0);
  EXPECT_NO_THROW(RmsNormCall()(k));
}

TEST_F(LaunchErrors, InAnotherContextOfTheSameDeviceToo) {
  const Kernel k = rms_norm();
  const auto mine = make_context();
  expect_error(Errc::driver, {"launching rms_norm", "CUDA_ERROR_INVALID_CONTEXT", "make that one current"},
               [&] { RmsNormCall()(k); });
  const Kernel here = rms_norm();
  EXPECT_NE(here.function(), k.function());
  EXPECT_NO_THROW(RmsNormCall()(here));
  service_.reset();
  EXPECT_EQ(cu().cuCtxDestroy(mine), 0);
}

TEST_F(LaunchErrors, OnAStreamOfAnotherContextNameTheStream) {
  const CUstream stream = make_stream();
  use(1);
  const Kernel k = rms_norm();
  expect_error(Errc::driver, {"launching rms_norm", "CUDA_ERROR_INVALID_HANDLE", "the stream"},
               [&] { RmsNormCall()(k, stream); });
}

TEST_F(LaunchErrors, InADestroyedContextSayToOpenAgain) {
  const auto mine = make_context();
  const Kernel k = rms_norm();
  const KernelTemplate t = service_->open("rms_norm");
  destroy_behind_our_back(mine);
  expect_error(Errc::driver,
               {"launching rms_norm", "CUDA_ERROR_CONTEXT_IS_DESTROYED (709)", "open the templates"},
               [&] { RmsNormCall()(k); });
  const std::size_t libraries = kiln_fake_live("library");
  expect_error(Errc::driver, {"loading rms_norm T=f16 H=4096", "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
               [&] { t.get(Dtype::f16, 4096); });
  EXPECT_EQ(kiln_fake_live("library"), libraries) << "nothing stays loaded";
  use(0);
  expect_error(Errc::driver, {"launching rms_norm", "CUDA_ERROR_INVALID_HANDLE", "destroyed"},
               [&] { RmsNormCall()(k); });
  EXPECT_NO_THROW(RmsNormCall()(rms_norm())) << "in the context that lives";
  service_.reset();  // also unloads kernels of the destroyed context
  EXPECT_EQ(kiln_fake_live("library"), 0u);
}

TEST_F(LaunchErrors, AfterTheDriversEndSayThatTheProcessExits) {
  const Kernel k = rms_norm();
  const KernelTemplate t = service_->open("rms_norm");
  kiln_fake_deinitialize();
  expect_error(Errc::driver, {"launching rms_norm", "CUDA_ERROR_DEINITIALIZED (4)", "exiting"},
               [&] { RmsNormCall()(k); });
  expect_error(Errc::driver, {"CUDA_ERROR_DEINITIALIZED (4)", "exiting"}, [&] { t.get(Dtype::f16, 4096); });
}

/// Runs `body` in a forked child. A failed expectation in the child fails the parent's test.
template <class Body>
void in_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(LaunchErrors, InAForkedChildSayToForkEarlierWithoutAskingTheDriver) {
  const Kernel k = rms_norm();
  const KernelTemplate t = service_->open("rms_norm");
  in_child([&] {
    const std::vector<std::string> parts = {"launching rms_norm T=bf16 H=4096",
                                            "CUDA_ERROR_NOT_INITIALIZED (3)", "forked after cuInit",
                                            "posix_spawn"};
    EXPECT_EQ(driver_calls([&] {
                expect_error(Errc::driver, parts, [&] { RmsNormCall()(k); });
                expect_error(Errc::driver, parts, [&] { launch_raw(k); });
              }),
              0u);
    expect_error(Errc::driver, {"CUDA_ERROR_NOT_INITIALIZED (3)", "forked after cuInit"},
                 [&] { t.get(Dtype::f16, 4096); });
    EXPECT_EQ(t.get(Dtype::bf16, 4096).handle(), k.handle()) << "what was ready is still found";
    in_child([&] { expect_error(Errc::driver, parts, [&] { RmsNormCall()(k); }); });
  });
  EXPECT_NO_THROW(RmsNormCall()(k)) << "the parent is unharmed";
  EXPECT_NO_THROW(t.get(Dtype::f16, 4096));
}

TEST_F(LaunchErrors, OpeningInAForkedChildSaysSoToo) {
  rms_norm();
  in_child([&] {
    try {
      service_->open("rms_norm");
      ADD_FAILURE() << "opened";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("CUDA_ERROR_NOT_INITIALIZED"), std::string::npos) << text;
      EXPECT_NE(text.find("forked after cuInit"), std::string::npos) << text;
    }
  });
}

TEST_F(LaunchErrors, AForkedChildUnloadsNothing) {
  rms_norm();
  in_child([&] {
    service_.reset();
    EXPECT_EQ(kiln_fake_calls("cuLibraryUnload"), 0u);
  });
  EXPECT_EQ(kiln_fake_live("library"), 1u);
  service_.reset();
  EXPECT_EQ(kiln_fake_calls("cuLibraryUnload"), 1u);
}

}  // namespace
}  // namespace kiln::testing
