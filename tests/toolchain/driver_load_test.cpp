// Each test runs in a new process ("threadsafe"), as Driver::get() looks for the driver once per process.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <thread>
#include <vector>

#include "support/places.hpp"
#include "toolchain/driver.hpp"

namespace kiln::toolchain {
namespace {

class DriverLoad : public ::testing::Test {
 protected:
  DriverLoad() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

[[noreturn]] void leave(bool good) {
  std::cerr << Driver::load_error() << std::flush;
  std::_Exit(good ? 0 : 1);
}

TEST_F(DriverLoad, SaysWhyThereIsNone) {
  EXPECT_EXIT(
      {
        ::setenv("KILN_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
        leave(!Driver::get());
      },
      ::testing::ExitedWithCode(0), "no CUDA driver: /nonexistent/libcuda.so.1");
}

TEST_F(DriverLoad, RemembersAFailure) {
  EXPECT_EXIT(
      {
        ::setenv("KILN_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
        Driver::get();
        ::setenv("KILN_LIBCUDA", places::kFakeCuda, 1);
        leave(!Driver::get());
      },
      ::testing::ExitedWithCode(0), "nonexistent");
}

TEST_F(DriverLoad, RefusesALibraryThatIsNoDriver) {
  EXPECT_EXIT(
      {
        ::setenv("KILN_LIBCUDA", "libm.so.6", 1);
        leave(!Driver::get());
      },
      ::testing::ExitedWithCode(0), "'libm.so.6' is older than 12.0");
}

TEST_F(DriverLoad, RefusesADriverThatIsTooOld) {
  EXPECT_EXIT(
      {
        ::setenv("KILN_LIBCUDA", places::kFakeCuda, 1);
        ::setenv("KILN_FAKE_VERSION", "11080", 1);
        leave(!Driver::get());
      },
      ::testing::ExitedWithCode(0), "\\(11\\.8\\) is not usable: it lacks cuCtxGetId, cuLibraryLoadData, ");
}

TEST_F(DriverLoad, NamesAMissingEntryPoint) {
  EXPECT_EXIT(
      {
        ::setenv("KILN_LIBCUDA", places::kFakeCuda, 1);
        ::setenv("KILN_FAKE_MISSING", "cuKernelGetFunction", 1);
        leave(!Driver::get());
      },
      ::testing::ExitedWithCode(0), "lacks cuKernelGetFunction$");
}

TEST_F(DriverLoad, LeavesAnOptionalEntryPointNull) {
  EXPECT_EXIT(
      {
        ::setenv("KILN_LIBCUDA", places::kFakeCuda, 1);
        ::setenv("KILN_FAKE_VERSION", "12000", 1);  // cuFuncLoad came with 12.4
        leave(Driver::get() && !Driver::get()->cuFuncLoad && Driver::get()->cuLaunchKernelEx);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST_F(DriverLoad, IsTheSameForAllThreads) {
  EXPECT_EXIT(
      {
        ::setenv("KILN_LIBCUDA", places::kFakeCuda, 1);
        std::vector<const Driver*> seen(8);
        std::vector<std::thread> threads;
        for (auto& slot : seen) threads.emplace_back([&slot] { slot = Driver::get(); });
        for (auto& thread : threads) thread.join();
        bool same = seen[0] != nullptr;
        for (const Driver* driver : seen) same = same && driver == seen[0];
        leave(same);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST_F(DriverLoad, AChildForkedBeforeInitialisationMayUseCuda) {
  EXPECT_EXIT(
      {
        ::setenv("KILN_LIBCUDA", places::kFakeCuda, 1);
        const Driver* driver = Driver::get();
        const pid_t child = ::fork();
        if (child == 0) {
          int count = 0;
          const bool good = driver->cuInit(0) == CUDA_SUCCESS &&
                            driver->cuDeviceGetCount(&count) == CUDA_SUCCESS && !Driver::forked_after_init();
          std::_Exit(good ? 0 : 1);
        }
        int status = -1;
        leave(::waitpid(child, &status, 0) == child && status == 0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST_F(DriverLoad, AChildOfAParentThatInitialisedBehindKilnsBackIsToldBothCauses) {
  EXPECT_EXIT(
      {
        ::setenv("KILN_LIBCUDA", places::kFakeCuda, 1);
        const Driver* driver = Driver::get();
        driver->cuInit(0);  // another library initialises the driver
        const pid_t child = ::fork();
        if (child == 0) {
          const std::string text = driver->describe(driver->cuInit(0));
          std::_Exit(text.find("CUDA_ERROR_NOT_INITIALIZED") == 0 &&
                             text.find("its parent had called it before the fork") != std::string::npos
                         ? 0
                         : 1);
        }
        int status = -1;
        leave(::waitpid(child, &status, 0) == child && status == 0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace kiln::toolchain
