#include "toolchain/nvrtc.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/file.hpp"
#include "kiln/error.hpp"
#include "tests/toolchain/compile.hpp"

namespace kiln::toolchain {
namespace {

std::string error_of(const std::string& nvrtc, const std::string& builtins) {
  try {
    Nvrtc::load(nvrtc, builtins);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Errc::no_compiler);
    return e.what();
  }
  return "";
}

TEST(NvrtcLoad, NamesTheLibraryThatIsMissing) {
  EXPECT_NE(
      error_of("/nonexistent/libnvrtc.so.13", "/nonexistent/libnvrtc-builtins.so.13.0").find("/nonexistent/"),
      std::string::npos);
}

TEST(NvrtcLoad, SaysWhatALibraryLacksThatIsNoNvrtc) {
  const std::string message = error_of("libm.so.6", "libm.so.6");
  EXPECT_NE(message.find("libm.so.6"), std::string::npos);
  EXPECT_NE(message.find("nvrtcGetErrorString"), std::string::npos);
}

class NvrtcTable : public ::testing::Test {
 protected:
  void SetUp() override {
    nvrtc_ = test::installed_nvrtc();
    if (!nvrtc_) GTEST_SKIP() << "no NVRTC on this machine";
  }
  const Nvrtc* nvrtc_ = nullptr;
};

TEST_F(NvrtcTable, KnowsVersionAndArchs) {
  EXPECT_TRUE(nvrtc_->at_least(12, 0));
  EXPECT_FALSE(nvrtc_->at_least(nvrtc_->major, nvrtc_->minor + 1));
  EXPECT_FALSE(nvrtc_->at_least(nvrtc_->major + 1, 0));
  EXPECT_TRUE(std::is_sorted(nvrtc_->archs.begin(), nvrtc_->archs.end()));
  EXPECT_TRUE(std::count(nvrtc_->archs.begin(), nvrtc_->archs.end(), 90));
}

TEST_F(NvrtcTable, IsLoadedOncePerPath) { EXPECT_EQ(test::installed_nvrtc(), nvrtc_); }

TEST_F(NvrtcTable, NamesCallAndErrorOfAFailure) {
  EXPECT_NO_THROW(nvrtc_->check(0, "nvrtcVersion"));
  try {
    nvrtc_->check(nvrtc_->CompileProgram(nullptr, 0, nullptr), "nvrtcCompileProgram");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Errc::internal);
    EXPECT_EQ(std::string(e.what()), "nvrtcCompileProgram: NVRTC_ERROR_INVALID_PROGRAM");
  }
}

TEST_F(NvrtcTable, ResolvesNameExpressions) {
  nvrtcProgram program = nullptr;
  const char* source = "template <class T, int N> __global__ void fill(T* p) { p[threadIdx.x] = N; }";
  ASSERT_EQ(nvrtc_->CreateProgram(&program, source, "test.cu", 0, nullptr, nullptr), 0);
  ASSERT_EQ(nvrtc_->AddNameExpression(program, "fill<float, 3>"), 0);
  const char* options[] = {"-arch=sm_90a"};
  ASSERT_EQ(nvrtc_->CompileProgram(program, 1, options), 0);
  const char* lowered = nullptr;
  ASSERT_EQ(nvrtc_->GetLoweredName(program, "fill<float, 3>", &lowered), 0);
  EXPECT_EQ(std::string(lowered), "_Z4fillIfLi3EEvPT_");
  EXPECT_EQ(nvrtc_->DestroyProgram(&program), 0);
}

TEST_F(NvrtcTable, CompilesWithBuiltinsThatLieElsewhere) {
  // Runs in a new process, as a builtins library that is already loaded would hide a failure.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const Toolkit toolkit =
            locate_toolkit({.cuda_home = std::getenv("KILN_CUDA_HOME") ? std::getenv("KILN_CUDA_HOME") : ""});
        const base::TempDir apart("kiln-nvrtc-");
        namespace fs = std::filesystem;
        fs::create_directory(apart.path() + "/a");
        fs::create_directory(apart.path() + "/b");
        const std::string library =
            apart.path() + "/a/" + fs::path(toolkit.compiler.library).filename().string();
        const std::string builtins =
            apart.path() + "/b/" + fs::path(toolkit.compiler.builtins).filename().string();
        fs::create_symlink(toolkit.compiler.library, library);
        fs::create_symlink(toolkit.compiler.builtins, builtins);
        const auto compiled =
            test::compile(Nvrtc::load(library, builtins), "extern \"C\" __global__ void k() {}", "sm_90a");
        // Removed here, as _Exit skips destructors.
        fs::remove_all(apart.path());
        std::_Exit(compiled.cubin.empty() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace kiln::toolchain
