#include "toolchain/locate.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.hpp"
#include "base/text.hpp"
#include "support/sanitized.hpp"
#include "support/system_calls.hpp"
#include "tests/toolchain/elf_file.hpp"
#include "toolchain/toolkit_layout.hpp"

namespace kiln::toolchain {
namespace {

namespace fs = std::filesystem;

class Locate : public ::testing::Test {
 protected:
  Locate() {
    for (const char* name :
         {"CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH"})
      ::unsetenv(name);
    ::setenv("HOME", (root() + "/home").c_str(), 1);
  }

  const std::string& root() const { return root_; }

  void file(const std::string& path, const std::string& bytes = "") {
    fs::create_directories(base::directory_of(root() + path));
    base::write_file(root() + path, bytes);
  }
  /// Makes libnvrtc.so.<major> and its builtins with different build-ids.
  void compiler(const std::string& lib, const std::string& version, const std::string& id = "id") {
    const std::string major = version.substr(0, version.find('.'));
    file(lib + "/libnvrtc.so." + major, test::elf_with_notes(test::gnu_build_id_note(id)));
    file(lib + "/libnvrtc-builtins.so." + version, test::elf_with_notes(test::gnu_build_id_note(id + "b")));
  }
  void headers(const std::string& include) { file(include + "/cuda_fp16.h"); }

  Toolkit in(const std::string& home) {
    return locate_toolkit({.cuda_home = root() + home, .use_environment = true});
  }
  Toolkit by_environment() { return locate_toolkit({}); }
  bool was_tried(const Toolkit& toolkit, const std::string& path) {
    return base::join(toolkit.tried, "\n").find(root() + path) != std::string::npos;
  }
  using Dirs = std::vector<std::string>;

 private:
  base::TempDir directory_{"kiln-locate-"};
  std::string root_ = fs::canonical(directory_.path()).string();
};

TEST_F(Locate, ReadsAToolkitWithItsHeadersAndBuildIds) {
  compiler("/cuda/lib64", "13.0", "\x0a");
  headers("/cuda/include");
  const Toolkit found = in("/cuda");
  EXPECT_TRUE(found.has_compiler());
  EXPECT_EQ(found.compiler.library, root() + "/cuda/lib64/libnvrtc.so.13");
  EXPECT_EQ(found.compiler.builtins, root() + "/cuda/lib64/libnvrtc-builtins.so.13.0");
  EXPECT_EQ(found.compiler_identity, "0a");
  EXPECT_EQ(found.builtins_identity, "0a62");
  EXPECT_EQ(found.include_dirs, Dirs{root() + "/cuda/include"});
}

TEST_F(Locate, OpensEachLibraryOnceAndAsksForNothingBehindThem) {
  KILN_SKIP_SANITIZED("system calls");
  compiler("/cuda/lib64", "16.9");  // the first names that are tried
  compiler("/cuda/lib", "16.9");
  headers("/cuda/include");
  const auto calls = testing::system_calls_of([&] { in("/cuda"); });
  if (!calls) GTEST_SKIP() << "no process may be traced here";
  EXPECT_LE(*calls, 1 + 2 * 5 + 2)
      << "the directory; each library's open, path, two reads and close; the headers";
}

TEST_F(Locate, AddsCcclsDirectoryOfCuda13BehindTheToolkits) {
  compiler("/cuda/lib64", "13.0");
  headers("/cuda/include");
  file("/cuda/include/cccl/cub/version.cuh");
  EXPECT_EQ(in("/cuda").include_dirs, (Dirs{root() + "/cuda/include", root() + "/cuda/include/cccl"}));
}

#if defined(__x86_64__)
TEST_F(Locate, ReadsTheTargetsDirectory) {
  compiler("/cuda/targets/x86_64-linux/lib", "12.4");
  headers("/cuda/targets/x86_64-linux/include");
  const Toolkit found = in("/cuda");
  EXPECT_EQ(found.compiler.library, root() + "/cuda/targets/x86_64-linux/lib/libnvrtc.so.12");
  EXPECT_EQ(found.include_dirs, Dirs{root() + "/cuda/targets/x86_64-linux/include"});
}
#endif

TEST_F(Locate, ReadsCuda13Wheels) {
  compiler("/nvidia/cu13/lib", "13.0");
  headers("/nvidia/cu13/include");
  for (const char* home : {"/nvidia", "/nvidia/cu13", "/nvidia/cu13/"}) {
    const Toolkit found = in(home);
    EXPECT_EQ(found.compiler.library, root() + "/nvidia/cu13/lib/libnvrtc.so.13") << home;
    EXPECT_EQ(found.include_dirs, Dirs{root() + "/nvidia/cu13/include"}) << home;
  }
}

TEST_F(Locate, ReadsCuda12Wheels) {
  compiler("/nvidia/cuda_nvrtc/lib", "12.8");
  headers("/nvidia/cuda_runtime/include");
  file("/nvidia/cuda_cccl/include/cub/version.cuh");
  file("/nvidia/cuda_nvcc/include/crt/mma.h");
  for (const char* home : {"/nvidia", "/nvidia/cuda_nvrtc"}) {
    const Toolkit found = in(home);
    EXPECT_EQ(found.compiler.library, root() + "/nvidia/cuda_nvrtc/lib/libnvrtc.so.12") << home;
    EXPECT_EQ(found.include_dirs,
              (Dirs{root() + "/nvidia/cuda_runtime/include", root() + "/nvidia/cuda_cccl/include",
                    root() + "/nvidia/cuda_nvcc/include"}))
        << home;
  }
}

TEST_F(Locate, SearchesNothingElseWhenAHomeIsConfigured) {
  compiler("/cuda/lib64", "13.0");
  ::setenv("CUDA_HOME", (root() + "/cuda").c_str(), 1);
  const Toolkit found = in("/empty");
  EXPECT_FALSE(found.has_compiler());
  EXPECT_TRUE(found.compiler.library.empty());
  EXPECT_EQ(found.tried.size(), 1u);
  EXPECT_TRUE(was_tried(found, "/empty"));
}

TEST_F(Locate, PrefersCudaHomeOverEnvironment) {
  compiler("/configured/lib64", "12.8");
  compiler("/environment/lib64", "13.0");
  ::setenv("CUDA_HOME", (root() + "/environment").c_str(), 1);
  EXPECT_EQ(in("/configured").compiler.library, root() + "/configured/lib64/libnvrtc.so.12");
}

TEST_F(Locate, FollowsTheDocumentedOrder) {
  const std::string places[] = {"/home-var", "/path-var", "/loader", "/venv"};
  compiler(places[0] + "/lib64", "13.0");
  compiler(places[1] + "/lib64", "13.0");
  compiler(places[2], "13.0");
  for (const std::string& place : places) headers(place + "/include");
  ::setenv("CUDA_HOME", (root() + places[0]).c_str(), 1);
  ::setenv("CUDA_PATH", (root() + places[1]).c_str(), 1);
  ::setenv("LD_LIBRARY_PATH", ("/nonexistent:" + root() + places[2]).c_str(), 1);
  EXPECT_EQ(by_environment().compiler.library, root() + places[0] + "/lib64/libnvrtc.so.13");
  ::unsetenv("CUDA_HOME");
  EXPECT_EQ(by_environment().compiler.library, root() + places[1] + "/lib64/libnvrtc.so.13");
  ::setenv("CUDA_PATH", "", 1);
  EXPECT_EQ(by_environment().compiler.library, root() + places[2] + "/libnvrtc.so.13");
}

TEST_F(Locate, IgnoresTheEnvironmentWhenToldTo) {
  compiler("/cuda/lib64", "13.0");
  ::setenv("CUDA_HOME", (root() + "/cuda").c_str(), 1);
  ::setenv("VIRTUAL_ENV", (root() + "/cuda").c_str(), 1);
  const Toolkit found = locate_toolkit({.cuda_home = "", .use_environment = false});
  EXPECT_FALSE(was_tried(found, ""));
}

TEST_F(Locate, FindsHeadersBesideALibraryDirectoryOfTheLoadersPath) {
  compiler("/opt/cuda/lib64", "13.0");
  headers("/opt/cuda/include");
  ::setenv("LD_LIBRARY_PATH", (root() + "/opt/cuda/lib64").c_str(), 1);
  EXPECT_EQ(by_environment().include_dirs, Dirs{root() + "/opt/cuda/include"});
}

TEST_F(Locate, PrefersTheHighestVersionOfOneDirectory) {
  compiler("/cuda/lib64", "12.8");
  compiler("/cuda/lib64", "13.0");
  file("/cuda/lib64/libnvrtc-builtins.so.13.1", "newer");
  EXPECT_EQ(in("/cuda").compiler.library, root() + "/cuda/lib64/libnvrtc.so.13");
  EXPECT_EQ(in("/cuda").compiler.builtins, root() + "/cuda/lib64/libnvrtc-builtins.so.13.1");
}

TEST_F(Locate, TakesTheBuiltinsOfTheLibrarysFullVersion) {
  file("/cuda/lib64/libnvrtc.so.13.0.88", "nvrtc");
  fs::create_symlink("libnvrtc.so.13.0.88", root() + "/cuda/lib64/libnvrtc.so.13");
  file("/cuda/lib64/libnvrtc-builtins.so.13.0");
  file("/cuda/lib64/libnvrtc-builtins.so.13.1");
  const Toolkit found = in("/cuda");
  EXPECT_EQ(found.compiler.library, root() + "/cuda/lib64/libnvrtc.so.13.0.88") << "symlinks are resolved";
  EXPECT_EQ(found.compiler.builtins, root() + "/cuda/lib64/libnvrtc-builtins.so.13.0");
}

TEST_F(Locate, IgnoresTheAlternativeDataModel) {
  file("/cuda/lib64/libnvrtc.alt.so.13");
  file("/cuda/lib64/libnvrtc-builtins.alt.so.13.0");
  EXPECT_TRUE(in("/cuda").compiler.library.empty());
}

TEST_F(Locate, PassesByACompilerWithoutBuiltinsAndSaysSo) {
  file("/half/lib64/libnvrtc.so.13");
  file("/half/lib64/libnvrtc-builtins.so.12.8");
  compiler("/whole/lib64", "12.8");
  ::setenv("CUDA_HOME", (root() + "/half").c_str(), 1);
  ::setenv("CUDA_PATH", (root() + "/whole").c_str(), 1);
  EXPECT_EQ(by_environment().compiler.library, root() + "/whole/lib64/libnvrtc.so.12");
  const Toolkit half = in("/half");
  EXPECT_FALSE(half.has_compiler());
  EXPECT_EQ(half.compiler.library, root() + "/half/lib64/libnvrtc.so.13");
  EXPECT_NE(half.tried[0].find("no libnvrtc-builtins"), std::string::npos);
}

TEST_F(Locate, TakesHeadersFromTheFirstPlaceThatHasSomeWhenTheCompilersHasNone) {
  headers("/only-headers/include");
  compiler("/only-compiler/lib64", "13.0");
  headers("/both/include");
  ::setenv("CUDA_HOME", (root() + "/only-headers").c_str(), 1);
  ::setenv("CUDA_PATH", (root() + "/only-compiler").c_str(), 1);
  EXPECT_EQ(by_environment().compiler.library, root() + "/only-compiler/lib64/libnvrtc.so.13");
  EXPECT_EQ(by_environment().include_dirs, Dirs{root() + "/only-headers/include"});
  ::setenv("CUDA_HOME", (root() + "/only-compiler").c_str(), 1);
  ::setenv("CUDA_PATH", (root() + "/both").c_str(), 1);
  EXPECT_EQ(by_environment().include_dirs, Dirs{root() + "/both/include"});
}

TEST_F(Locate, PrefersTheCompilersOwnHeaders) {
  headers("/only-headers/include");
  compiler("/both/lib64", "13.0");
  headers("/both/include");
  ::setenv("CUDA_HOME", (root() + "/only-headers").c_str(), 1);
  ::setenv("CUDA_PATH", (root() + "/both").c_str(), 1);
  EXPECT_EQ(by_environment().include_dirs, Dirs{root() + "/both/include"});
}

TEST_F(Locate, AnswersARelativeHomeWithAbsolutePaths) {
  compiler("/cuda/lib64", "13.0");
  headers("/cuda/include");
  const fs::path before = fs::current_path();
  fs::current_path(root());
  const Toolkit found = locate_toolkit({.cuda_home = "cuda/../cuda", .use_environment = true});
  fs::current_path(before);
  EXPECT_EQ(found.compiler.library, root() + "/cuda/lib64/libnvrtc.so.13");
  EXPECT_EQ(found.include_dirs, Dirs{root() + "/cuda/include"});
}

TEST_F(Locate, SurvivesAHomeThatIsAFile) {
  file("/cuda", "text");
  EXPECT_FALSE(in("/cuda").has_compiler());
}

// The standard toolkit directory is searched before the pip packages, and a test cannot hide it.
class LocatePip : public Locate {
 protected:
  void SetUp() override {
    if (::access("/usr/local/cuda", F_OK) == 0) GTEST_SKIP() << "/usr/local/cuda exists and comes first";
  }
};

TEST_F(LocatePip, FindsTheNewestPythonsWheelsOfAVirtualEnvironment) {
  compiler("/venv/lib/python3.9/site-packages/nvidia/cu13/lib", "13.0");
  compiler("/venv/lib/python3.12/site-packages/nvidia/cu13/lib", "13.0");
  headers("/venv/lib/python3.12/site-packages/nvidia/cu13/include");
  ::setenv("VIRTUAL_ENV", (root() + "/venv").c_str(), 1);
  EXPECT_EQ(by_environment().compiler.library,
            root() + "/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
}

TEST_F(LocatePip, FindsWheelsInADirectoryOfThePythonPath) {
  compiler("/packages/nvidia/cu13/lib", "13.0");
  headers("/packages/nvidia/cu13/include");
  ::setenv("PYTHONPATH", (root() + "/none::" + root() + "/packages").c_str(), 1);
  EXPECT_EQ(by_environment().compiler.library, root() + "/packages/nvidia/cu13/lib/libnvrtc.so.13");
}

TEST_F(Locate, TheWheelsOfAPrefixAreBelowLibAndLib64) {
  file("/venv/lib/python3.9/site-packages/nvidia/cu13/x", "");
  file("/venv/lib64/python3.12/site-packages/nvidia/cu13/x", "");
  file("/venv/lib/python3.11/dist-packages/nvidia/cu13/x", "");
  EXPECT_EQ(wheel_roots(root() + "/venv"), (Dirs{root() + "/venv/lib64/python3.12/site-packages/nvidia",
                                                 root() + "/venv/lib/python3.11/dist-packages/nvidia",
                                                 root() + "/venv/lib/python3.9/site-packages/nvidia"}));
}

TEST_F(Locate, TheWheelsLieBesideKilnsOwnPackage) {
  EXPECT_EQ(wheel_roots_beside(root() + "/target/kiln/lib"), Dirs{});
  file("/target/kiln/__init__.py", "");
  file("/target/nvidia/cu13/x", "");
  EXPECT_EQ(wheel_roots_beside(root() + "/target/kiln/lib"), Dirs{root() + "/target/nvidia"})
      << "pip install --target";
  file("/venv/lib64/python3.12/site-packages/kiln/__init__.py", "");
  file("/venv/lib/python3.12/site-packages/nvidia/cu13/x", "");
  EXPECT_EQ(wheel_roots_beside(root() + "/venv/lib64/python3.12/site-packages/kiln/bin"),
            Dirs{root() + "/venv/lib/python3.12/site-packages/nvidia"});
  file("/prefix/nvidia/cu13/x", "");
  EXPECT_EQ(wheel_roots_beside(root() + "/prefix/kiln/lib"), Dirs{}) << "no Python package";
}

}  // namespace
}  // namespace kiln::toolchain
