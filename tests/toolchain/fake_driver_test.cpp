// The driver table through the fake driver, and the rules of the fake driver that other tests rely on.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "kiln/error.hpp"
#include "support/places.hpp"
#include "tests/support/fake_driver/kiln_fake.h"
#include "tests/support/fake_driver/make_cubin.hpp"
#include "toolchain/driver.hpp"

namespace kiln::toolchain {
namespace {

constexpr int kNotInitialized = 3, kInvalidHandle = 400, kNotFound = 500, kCaptureUnsupported = 900,
              kCaptureInvalidated = 901;

class FakeDriver : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("KILN_LIBCUDA", places::kFakeCuda, 1);
    kiln_fake_reset();
    ASSERT_NE(Driver::get(), nullptr) << Driver::load_error();
    ASSERT_EQ(cu().cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(cu().cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
  }
  static const Driver& cu() { return *Driver::get(); }

  CUlibrary load(const test::CubinRecipe& recipe, CUresult expected = CUDA_SUCCESS) {
    image_ = test::make_cubin(recipe);
    CUlibrary library = nullptr;
    EXPECT_EQ(cu().cuLibraryLoadData(&library, image_.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
              expected);
    return library;
  }
  CUfunction function(CUlibrary library, const char* name) {
    CUkernel kernel = nullptr;
    CUfunction out = nullptr;
    EXPECT_EQ(cu().cuLibraryGetKernel(&kernel, library, name), CUDA_SUCCESS);
    EXPECT_EQ(cu().cuKernelGetFunction(&out, kernel), CUDA_SUCCESS);
    return out;
  }
  CUfunction simple() {
    return function(load({.sm = 90, .elf_abi = 8, .kernels = {test::make_kernel("k", {8, 4})}}), "k");
  }
  CUresult launch(CUfunction f, LaunchConfig config = {}) {
    std::uint64_t pointer = 0x1122334455667788;
    std::int32_t rows = 42;
    void* params[] = {&pointer, &rows};
    return cu().cuLaunchKernelEx(&config, f, params, nullptr);
  }

  CUcontext context_ = nullptr;
  std::string image_;
};

TEST_F(FakeDriver, TellsAboutItsDevice) {
  const DeviceFacts facts = device_facts(cu(), 0);
  EXPECT_EQ(facts.arch.name(), "sm_90a");
  EXPECT_EQ(facts.sms, 132);
  EXPECT_EQ(facts.smem_optin, 232448);
  EXPECT_EQ(facts.name, "Fake sm_90");
  try {
    device_facts(cu(), 5);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Errc::driver);
    EXPECT_STREQ(
        e.what(),
        "cuDeviceGet while asking about device 5: CUDA_ERROR_INVALID_DEVICE (101): invalid device ordinal");
  }
}

TEST_F(FakeDriver, DescribesErrors) {
  EXPECT_EQ(cu().describe(CUDA_ERROR_INVALID_IMAGE),
            "CUDA_ERROR_INVALID_IMAGE (200): device kernel image is invalid");
  EXPECT_EQ(cu().describe(12345), "CUresult 12345");
  EXPECT_NO_THROW(cu().check(CUDA_SUCCESS, "cuInit"));
  EXPECT_THROW(cu().check(CUDA_ERROR_INVALID_VALUE, "cuInit"), Error);
}

TEST_F(FakeDriver, CopiesThroughHostMemory) {
  CUdeviceptr a = 0, b = 0;
  ASSERT_EQ(cu().cuMemAlloc(&a, 100), CUDA_SUCCESS);
  ASSERT_EQ(cu().cuMemAlloc(&b, 100), CUDA_SUCCESS);
  char in[100] = "hello", out[100] = {};
  EXPECT_EQ(cu().cuMemcpyHtoD(a, in, 100), CUDA_SUCCESS);
  EXPECT_EQ(cu().cuMemsetD8(a + 1, 'u', 1), CUDA_SUCCESS);
  EXPECT_EQ(cu().cuMemcpyDtoD(b, a, 100), CUDA_SUCCESS);
  EXPECT_EQ(cu().cuMemcpyDtoH(out, b, 100), CUDA_SUCCESS);
  EXPECT_STREQ(out, "hullo");
  EXPECT_EQ(cu().cuMemcpyDtoH(out, b + 1, 100), CUDA_ERROR_INVALID_VALUE) << "past the end";
  EXPECT_EQ(kiln_fake_live("bytes"), 200u);
  EXPECT_EQ(cu().cuMemFree(a), CUDA_SUCCESS);
  EXPECT_EQ(cu().cuMemFree(a), CUDA_ERROR_INVALID_VALUE) << "twice";
  EXPECT_EQ(cu().cuMemFree(b), CUDA_SUCCESS);
}

TEST_F(FakeDriver, LoadsAndUnloadsLibraries) {
  const CUlibrary library =
      load({.sm = 80, .elf_abi = 7, .kernels = {test::make_kernel("k", {})}}, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(library, nullptr);
  const CUlibrary fits = load({.sm = 90, .elf_abi = 8, .kernels = {test::make_kernel("k", {})}});
  CUkernel kernel = nullptr;
  EXPECT_EQ(cu().cuLibraryGetKernel(&kernel, fits, "absent"), kNotFound);
  EXPECT_EQ(kiln_fake_live("library"), 1u);
  EXPECT_EQ(cu().cuLibraryUnload(fits), CUDA_SUCCESS);
  EXPECT_EQ(cu().cuLibraryUnload(fits), kInvalidHandle);
  EXPECT_EQ(
      cu().cuLibraryLoadData(&kernel ? nullptr : nullptr, "x", nullptr, nullptr, 0, nullptr, nullptr, 0),
      CUDA_ERROR_INVALID_VALUE);
  CUlibrary none = nullptr;
  EXPECT_EQ(cu().cuLibraryLoadData(&none, ".version 8.0", nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_ERROR_INVALID_IMAGE);
}

TEST_F(FakeDriver, GivesFunctionsPerContext) {
  const CUfunction f = simple();
  ASSERT_EQ(cu().cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(launch(f), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(FakeDriver, RecordsLaunchesWithTheirArguments) {
  const CUfunction f = simple();
  LaunchAttribute attributes[2];
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[0].value.cluster = {2, 1, 1};
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attributes[1].value.value = 1;
  LaunchConfig config{
      .grid_x = 6, .block_x = 256, .shared_bytes = 1024, .attributes = attributes, .attribute_count = 2};
  int called = 0;
  kiln_fake_on_launch([](const kiln_fake_launch*, void* user) { ++*static_cast<int*>(user); }, &called);
  ASSERT_EQ(launch(f, config), CUDA_SUCCESS);
  EXPECT_EQ(called, 1);
  kiln_fake_launch seen{};
  ASSERT_EQ(kiln_fake_launches(), 1u);
  ASSERT_TRUE(kiln_fake_launch_at(0, &seen));
  EXPECT_STREQ(seen.kernel, "k");
  EXPECT_EQ(seen.grid[0], 6u);
  EXPECT_EQ(seen.cluster[0], 2u);
  EXPECT_TRUE(seen.programmatic);
  EXPECT_FALSE(seen.cooperative);
  ASSERT_EQ(seen.argument_count, 2u);
  EXPECT_EQ(seen.argument_sizes[1], 4u);
  std::int32_t rows = 0;
  std::memcpy(&rows, seen.arguments[1], sizeof rows);
  EXPECT_EQ(rows, 42);
  EXPECT_FALSE(kiln_fake_launch_at(1, &seen));
}

TEST_F(FakeDriver, RefusesGeometryThatTheDriverRefuses) {
  const CUfunction f = simple();
  EXPECT_EQ(launch(f, {.grid_x = 0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(f, {.block_x = 1024, .block_y = 2}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(f, {.grid_y = 65536}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(f, {.shared_bytes = 100 << 10}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu().cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10),
            CUDA_SUCCESS);
  EXPECT_EQ(launch(f, {.shared_bytes = 100 << 10}), CUDA_SUCCESS);
  EXPECT_EQ(cu().cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 228 << 10),
            CUDA_ERROR_INVALID_VALUE);
  LaunchConfig config;
  EXPECT_EQ(cu().cuLaunchKernelEx(&config, f, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE)
      << "arguments are missing";
}

TEST_F(FakeDriver, CapturesAndReplaysLaunches) {
  const CUfunction f = simple();
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  int status = -1, ran = 0;
  kiln_fake_on_launch([](const kiln_fake_launch*, void* user) { ++*static_cast<int*>(user); }, &ran);
  ASSERT_EQ(cu().cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu().cuStreamBeginCapture(stream, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu().cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
  EXPECT_NE(status, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(launch(f, {.stream = stream}), CUDA_SUCCESS);
  EXPECT_EQ(ran, 0);
  ASSERT_EQ(cu().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  ASSERT_EQ(cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu().cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(cu().cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cu().cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cu().cuStreamDestroy(stream), CUDA_SUCCESS);
}

TEST_F(FakeDriver, BreaksACaptureByLoadingOnlyWhenStrictAndNotRelaxed) {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  const test::CubinRecipe recipe{.sm = 90, .elf_abi = 8, .kernels = {test::make_kernel("k", {8, 4})}};
  ASSERT_EQ(cu().cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu().cuStreamBeginCapture(stream, 0), CUDA_SUCCESS);
  load(recipe);
  kiln_fake_strict_capture(1);
  int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  ASSERT_EQ(cu().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  load(recipe);
  ASSERT_EQ(cu().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
  load(recipe, kCaptureUnsupported);
  EXPECT_EQ(cu().cuStreamEndCapture(stream, &graph), kCaptureInvalidated);
}

TEST_F(FakeDriver, InjectsErrorsAndCountsCalls) {
  kiln_fake_fail("cuMemAlloc", 2, 1, 1);
  CUdeviceptr p = 0;
  EXPECT_EQ(cu().cuMemAlloc(&p, 8), CUDA_SUCCESS);
  EXPECT_EQ(cu().cuMemAlloc(&p, 8), 2);
  EXPECT_EQ(cu().cuMemAlloc(&p, 8), CUDA_SUCCESS);
  EXPECT_EQ(kiln_fake_calls("cuMemAlloc"), 3u);
  kiln_fake_deinitialize();
  EXPECT_EQ(cu().cuMemAlloc(&p, 8), CUDA_ERROR_DEINITIALIZED);
}

TEST_F(FakeDriver, MeasuresEvents) {
  CUevent a = nullptr, b = nullptr;
  float ms = -1;
  ASSERT_EQ(cu().cuEventCreate(&a, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu().cuEventCreate(&b, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu().cuEventElapsedTime(&ms, a, b), kInvalidHandle) << "not recorded";
  ASSERT_EQ(cu().cuEventRecord(a, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cu().cuEventRecord(b, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cu().cuEventElapsedTime(&ms, a, b), CUDA_SUCCESS);
  EXPECT_GE(ms, 0);
}

TEST_F(FakeDriver, KeepsAStackOfContextsPerThread) {
  CUcontext mine = nullptr, seen = nullptr;
  ASSERT_EQ(cu().cuCtxCreate(&mine, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu().cuCtxGetCurrent(&seen), CUDA_SUCCESS);
  EXPECT_EQ(seen, mine) << "made current";
  EXPECT_EQ(cu().cuCtxPopCurrent(&seen), CUDA_SUCCESS);
  EXPECT_EQ(seen, mine);
  EXPECT_EQ(cu().cuCtxGetCurrent(&seen), CUDA_SUCCESS);
  EXPECT_EQ(seen, context_) << "what was current before";
  EXPECT_EQ(cu().cuCtxPushCurrent(mine), CUDA_SUCCESS);
  EXPECT_EQ(cu().cuCtxDestroy(mine), CUDA_SUCCESS);
  EXPECT_EQ(cu().cuCtxGetCurrent(&seen), CUDA_SUCCESS);
  EXPECT_EQ(seen, context_) << "popped with the context";
  EXPECT_EQ(cu().cuCtxDestroy(context_), CUDA_ERROR_INVALID_CONTEXT) << "a primary one is released";
  EXPECT_EQ(kiln_fake_live("context"), 1u);
}

TEST_F(FakeDriver, ADestroyedContextStaysCurrentInOtherThreadsAndIsRefused) {
  CUcontext mine = nullptr;
  ASSERT_EQ(cu().cuCtxCreate(&mine, 0, 0), CUDA_SUCCESS);
  const CUfunction f = simple();
  CUstream stream = nullptr;
  ASSERT_EQ(cu().cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu().cuCtxPopCurrent(nullptr), CUDA_SUCCESS);
  std::thread other([&] {
    EXPECT_EQ(cu().cuCtxSetCurrent(mine), CUDA_SUCCESS);
    EXPECT_EQ(launch(f, {.stream = stream}), CUDA_SUCCESS);
    std::thread([&] { EXPECT_EQ(cu().cuCtxDestroy(mine), CUDA_SUCCESS); }).join();
    kiln_fake_reuse_context_address(1);
    CUcontext again = nullptr;
    std::thread([&] { EXPECT_EQ(cu().cuCtxCreate(&again, 0, 0), CUDA_SUCCESS); }).join();
    EXPECT_EQ(again, mine) << "the control was asked for the same address";
    CUdevice device = 0;
    unsigned long long id = 0;
    CUdeviceptr memory = 0;
    EXPECT_EQ(launch(f), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cu().cuCtxGetDevice(&device), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cu().cuCtxGetId(nullptr, &id), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cu().cuMemAlloc(&memory, 8), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(cu().cuCtxSetCurrent(again), CUDA_SUCCESS) << "the new one at that address";
    EXPECT_EQ(launch(f), kInvalidHandle) << "its functions went with the context";
    EXPECT_EQ(cu().cuStreamDestroy(stream), kInvalidHandle) << "and its streams";
  });
  other.join();
  EXPECT_EQ(launch(simple(), {}), CUDA_SUCCESS) << "the primary context is untouched";
}

TEST_F(FakeDriver, NeverUsesAContextsIdTwice) {
  kiln_fake_reuse_context_address(1);
  CUcontext context = nullptr, first = nullptr;
  std::set<unsigned long long> ids;
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(cu().cuCtxCreate(&context, 0, 0), CUDA_SUCCESS);
    if (i == 0) first = context;
    EXPECT_EQ(context, first);
    unsigned long long id = 0, current = 0;
    EXPECT_EQ(cu().cuCtxGetId(context, &id), CUDA_SUCCESS);
    EXPECT_EQ(cu().cuCtxGetId(nullptr, &current), CUDA_SUCCESS);
    EXPECT_EQ(id, current);
    EXPECT_TRUE(ids.insert(id).second) << id;
    ASSERT_EQ(cu().cuCtxDestroy(context), CUDA_SUCCESS);
  }
  kiln_fake_reuse_context_address(0);
  ASSERT_EQ(cu().cuCtxCreate(&context, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu().cuCtxDestroy(context), CUDA_SUCCESS);
  ASSERT_EQ(cu().cuCtxCreate(&first, 0, 0), CUDA_SUCCESS);
  EXPECT_NE(first, context);
  ASSERT_EQ(cu().cuCtxDestroy(first), CUDA_SUCCESS);
}

TEST_F(FakeDriver, AStreamServesItsOwnContextOnly) {
  CUcontext mine = nullptr;
  CUstream stream = nullptr;
  ASSERT_EQ(cu().cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu().cuCtxCreate(&mine, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(launch(simple(), {.stream = stream}), kInvalidHandle);
  ASSERT_EQ(cu().cuCtxDestroy(mine), CUDA_SUCCESS);
}

/// Runs `body` in a forked child, whose exit status is the result of `body`.
template <class Body>
int in_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(FakeDriver, EveryCallFailsInAForkedChildAlsoInitialising) {
  EXPECT_EQ(in_child([] {
              int count = 0, version = 0;
              CUcontext context = nullptr;
              const bool dead = cu().cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                                cu().cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                                cu().cuCtxGetCurrent(&context) == CUDA_ERROR_NOT_INITIALIZED;
              return dead && cu().cuDriverGetVersion(&version) == CUDA_SUCCESS ? 0 : 1;
            }),
            0);
  EXPECT_NE(simple(), nullptr) << "the parent is unharmed";
}

TEST_F(FakeDriver, AForkWhileAnotherThreadIsInTheDriverLeavesTheChildAlive) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    int count = 0;
    while (!stop) cu().cuDeviceGetCount(&count);
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(in_child([] {
                int count = 0;
                return cu().cuDeviceGetCount(&count);
              }),
              CUDA_ERROR_NOT_INITIALIZED);
  }
  stop = true;
  busy.join();
}

TEST_F(FakeDriver, KilnKnowsAChildForkedAfterItSawTheDriverInitialised) {
  device_facts(cu(), 0);
  EXPECT_FALSE(Driver::forked_after_init());
  EXPECT_EQ(in_child([] {
              if (!Driver::forked_after_init()) return 1;
              try {
                Driver::refuse_in_forked_child("loading k");
              } catch (const Error& error) {
                const std::string what = error.what();
                const bool good = what.find("loading k: CUDA_ERROR_NOT_INITIALIZED (3): ") == 0 &&
                                  what.find("forked after cuInit") != std::string::npos &&
                                  what.find("posix_spawn") != std::string::npos;
                return good && error.code() == Errc::driver
                           ? in_child([] { return Driver::forked_after_init() ? 0 : 1; })
                           : 2;
              }
              return 3;
            }),
            0);
  EXPECT_NO_THROW(Driver::refuse_in_forked_child("loading k"));
}

TEST_F(FakeDriver, SaysWhatToDoAboutErrorsOfContextsAndProcesses) {
  const auto says = [](CUresult result, const char* name, const char* what) {
    const std::string text = cu().describe(result);
    EXPECT_EQ(text.find(name), 0u) << text;
    EXPECT_NE(text.find(what), std::string::npos) << text;
  };
  says(CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED (3)", "cuInit was not called in this process");
  says(CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED (4)", "the process is exiting");
  says(CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT (201)", "make that one current");
  says(CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED (709)", "open the templates");
  says(CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE (400)", "another context");
}

}  // namespace
}  // namespace kiln::toolchain
