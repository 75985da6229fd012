// Includes that must not be read. The scan refuses them where the text names the file. The kernel
// refuses them where macros build the name.
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/syscall.h>

#include <thread>

#include "compile/backend/confinement.hpp"
#include "tests/fault/compile/hostile_fixture.hpp"

namespace kiln::testing {
namespace {

namespace fs = std::filesystem;

bool kernel_confines() {
  return ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) >= 1;
}
#define KILN_NEEDS_LANDLOCK() \
  if (!kernel_confines()) GTEST_SKIP() << "this kernel has no Landlock"

const std::string kKernel =
    "\ntemplate <class T, int N> __global__ void scale(T* out, int n) { out[0] = T(N); }\n";
constexpr const char* kSecret = "kiln_secret_token";
/// Hides a header name from the text scan: P(x) makes a header name of any tokens.
const std::string kPaste = "#define S(x) #x\n#define P(x) S(x)\n";

class HostileInclude : public HostileTest {
 protected:
  void SetUp() override {
    HostileTest::SetUp();
    if (IsSkipped()) return;
    secret_ = tree_.write("outside/secret.h", std::string(kSecret) + " " + kSecret + ";\n");
    ASSERT_EQ(::mkfifo(tree_.at("outside/fifo").c_str(), 0600), 0);
    tree_.write("t/hostile.toml", small_manifest("hostile"));
  }
  /// Writes the template "hostile". Its directory is a search directory.
  void write_source(const std::string& text) const { tree_.write("t/hostile.cu", text + kKernel); }

  std::string secret_;
};

TEST_F(HostileInclude, WhatTheTextSaysIsRefusedBeforeAnyWorkerStarts) {
  Service service(with_deadline(60));
  fs::create_symlink("/dev/zero", tree_.at("t/zero.h"));
  fs::create_symlink(tree_.at("outside/fifo"), tree_.at("t/link.h"));
  ASSERT_EQ(::mkfifo(tree_.at("t/fifo.h").c_str(), 0600), 0);
  const std::string fifo = tree_.at("outside/fifo");
  for (const std::string& text : std::vector<std::string>{
           "#include \"/dev/zero\"\n", "#include </dev/zero>\n", "%:include \"/dev/zero\"\n",
           "#inc\\\nlude \"/dev/\\\nzero\"\n", "#define F \"/dev/zero\"\n#include F\n",
           "#if __has_include(\"/dev/zero\")\n#endif\n", "#include_next </dev/zero>\n",
           "#import \"/dev/zero\"\n", "#include \"zero.h\"\n", "#include <link.h>\n", "#include \"fifo.h\"\n",
           "#define F \"fifo.h\"\n#include F\n"}) {
    write_source(text);
    expect_fails(service, "hostile", Errc::source, 1, {"the template's source"});
  }
  for (const std::string& text : std::vector<std::string>{
           "#include \"" + fifo + "\"\n", "#include \"../outside/fifo\"\n",
           "#include \"../outside/secret.h\"\n", "#define F \"" + secret_ + "\"\n#include F\n"}) {
    write_source(text);
    const std::string message = expect_fails(service, "hostile", Errc::source, 1,
                                             {"the template's source", "outside", "include_dirs"});
    EXPECT_EQ(message.find(kSecret), std::string::npos);
  }
  EXPECT_TRUE(children().empty()) << "a worker was started";
  expect_works(service);
}

TEST_F(HostileInclude, WhatMacrosPutTogetherIsRefusedByTheKernel) {
  KILN_NEEDS_LANDLOCK();
  Service service(with_deadline(20));
  const std::string outside = tree_.at("outside"), define = "#define D " + outside + "\n";
  for (const std::string& text : std::vector<std::string>{
           kPaste + define + "#include P(D/secret.h)\n",
           kPaste + "#define D ..\n#include P(D/outside/secret.h)\n",
           kPaste + "#define D /proc/self/root" + outside + "\n#include P(D/secret.h)\n",
           "#define L <\n#define R >\n#define E tmp\n#define D " + outside.substr(4) +
               "\n#include L/E D/secret.h R\n",
           kPaste + define + "#include_next P(D/secret.h)\n", kPaste + define + "%:include P(D/secret.h)\n",
           kPaste + "#define D etc\n#include P(/D/hostname)\n",
           kPaste + "#define D proc\n#include P(/D/self/environ)\n",
           kPaste + "#define D proc\n#include P(/D/1/cmdline)\n",
           kPaste + "#define D dev\n#include P(/D/zero)\n", kPaste + define + "#include P(D/fifo)\n"}) {
    write_source(text);
    const std::string message =
        expect_fails(service, "hostile", Errc::compile_failed, 20, {"hostile T=f32 N=7", "open source file"});
    EXPECT_EQ(message.find(kSecret), std::string::npos) << message;
    EXPECT_EQ(message.find("TMPDIR"), std::string::npos) << message;
  }
  expect_works(service);
}

TEST_F(HostileInclude, AProbeOfWhatLiesOutsideFindsNothing) {
  KILN_NEEDS_LANDLOCK();
  Service service(with_deadline(20));
  for (const char* name : {"secret.h", "fifo"}) {
    write_source(kPaste + "#define D " + tree_.at("outside") + "\n#if __has_include(P(D/" + name +
                 "))\n#error it is there\n#endif\n");
    EXPECT_NO_THROW(compile(service, "hostile", {Dtype::f32, ++kernels_})) << name;
  }
}

TEST_F(HostileInclude, AFifoInASearchDirectoryThatNoScanSeesIsKilledAtTheDeadline) {
  Service service(with_deadline(2));
  ASSERT_EQ(::mkfifo(tree_.at("t/fifo.h").c_str(), 0600), 0);
  write_source(kPaste + "#define D fifo\n#include P(D.h)\n");
  expect_fails(service, "hostile", Errc::compile_timeout, 2, {"killed at its deadline"});
  expect_works(service);
}

TEST_F(HostileInclude, AConfinedCompileLeavesNothingInTheWorkersDirectory) {
  Service service(with_deadline(20));
  expect_works(service);
  write_source("#error no\n");
  expect_fails(service, "hostile", Errc::compile_failed, 20, {"no"});
  const auto workers = children();
  ASSERT_EQ(workers.size(), 1u);
  std::ifstream environment("/proc/" + std::to_string(workers[0]) + "/environ");
  std::string directory;
  for (std::string entry; std::getline(environment, entry, '\0');)
    if (entry.starts_with("TMPDIR=")) directory = entry.substr(7);
  ASSERT_NE(directory.find("kiln-worker-"), std::string::npos);
  EXPECT_TRUE(fs::is_empty(directory));
}

TEST_F(HostileInclude, SymlinkFarmsCompileAndAreKept) {
  tree_.write("farm/deep/a.h", "#include \"b.h\"\n");
  tree_.write("farm/deep/b.h", "#define B 1\n");
  fs::create_symlink(tree_.at("farm/deep/a.h"), tree_.at("t/first.h"));
  fs::create_symlink(tree_.at("farm/deep/b.h"), tree_.at("t/b.h"));
  fs::create_directory_symlink(tree_.at("farm"), tree_.at("t/whole"));
  write_source("#include \"first.h\"\n#include <whole/deep/b.h>\nstatic_assert(B == 1);\n");
  fs::create_directory_symlink(tree_.at("t"), tree_.at("link"));
  Options o = with_deadline(20);
  o.template_path = tree_.at("link");
  {
    Service service(o);
    const auto got = compile(service, "hostile", {Dtype::f32, 7});
    EXPECT_EQ(got.unpublishable, "");
  }
  Service again(o);
  EXPECT_EQ(compile(again, "hostile", {Dtype::f32, 7}).outcome, Outcome::disk);
}

/// Nix, Spack and conda install toolkits like this: directories of links, and each file lies somewhere else.
TEST_F(HostileInclude, AToolkitThatIsASymlinkFarmCompiles) {
  ASSERT_FALSE(toolkit_.include_dirs.empty());
  const fs::path include = toolkit_.include_dirs.front();
  fs::create_directories(tree_.at("cuda/include"));
  fs::create_directories(tree_.at("cuda/lib64"));
  for (const auto& entry : fs::directory_iterator(include)) {
    if (!entry.is_directory())
      fs::create_symlink(entry.path(), tree_.at("cuda/include/" + entry.path().filename().string()));
  }
  for (const char* part : {"cuda", "nv"}) {
    for (const auto& entry : fs::recursive_directory_iterator(include / "cccl" / part)) {
      const std::string to = tree_.at("cuda/include/cccl/" + fs::relative(entry, include / "cccl").string());
      fs::create_directories(fs::path(to).parent_path());
      if (!entry.is_directory()) fs::create_symlink(entry.path(), to);
    }
  }
  for (const std::string& library : {toolkit_.compiler.library, toolkit_.compiler.builtins}) {
    const auto name = fs::path(library).filename().string();
    fs::create_symlink(library, tree_.at("cuda/lib64/" + name.substr(0, name.find(".so.") + 6)));
    if (!fs::exists(tree_.at("cuda/lib64/" + name)))
      fs::create_symlink(library, tree_.at("cuda/lib64/" + name));
  }
  write_source("#include <cuda_bf16.h>\n#include <cuda/std/cstdint>\n");
  Options o = with_deadline(60);
  o.cuda_home = tree_.at("cuda");
  Service service(o);
  ASSERT_EQ(service.core().state().files.toolkit().include_dirs.front(), tree_.at("cuda/include"));
  EXPECT_EQ(compile(service, "hostile", {Dtype::f32, 7}).outcome, Outcome::compiled);
}

TEST_F(HostileInclude, LinkedPlacesAreFilesOfTheProjectAndDirectoriesOfTheToolkit) {
  const std::string file = tree_.write("farm/x.h", ""), kit = tree_.write("store/include/cuda/y.h", "");
  fs::create_directories(tree_.at("p"));
  fs::create_directories(tree_.at("k/cuda"));
  tree_.write("p/z.h", "");
  fs::create_symlink(file, tree_.at("p/x.h"));
  fs::create_symlink(kit, tree_.at("k/cuda/y.h"));
  source::ScanCache cache;
  const auto closure = source::scan_closure("#include <x.h>\n#include <z.h>\n#include <cuda/y.h>\n", {},
                                            {{tree_.at("p")}, {tree_.at("k")}}, cache);
  EXPECT_EQ(compile::linked_from(closure), (std::vector<std::string>{file, tree_.at("store/include")}));
}

TEST_F(HostileInclude, AConfinedThreadAndThoseItStartsAreAloneInTheirCage) {
  KILN_NEEDS_LANDLOCK();
  compile::WorkerRequest request;
  request.compiler = toolkit_.compiler;
  request.roots = {{".k0", tree_.at("t")}};
  fs::create_directories(tree_.at("private/own"));
  fs::create_directories(tree_.at("headers"));
  const auto can = [](const std::string& path, int flags) {
    const base::Fd fd(::open(path.c_str(), flags | O_CLOEXEC, 0600));
    return static_cast<bool>(fd);
  };
  const auto expect_confined = [&] {
    EXPECT_TRUE(can(tree_.at("t/a.h"), O_RDONLY));
    EXPECT_FALSE(can(tree_.at("t/a.h"), O_WRONLY));
    EXPECT_FALSE(can(tree_.at("t/new"), O_WRONLY | O_CREAT));
    EXPECT_FALSE(can(secret_, O_RDONLY));
    EXPECT_FALSE(can("/etc/hostname", O_RDONLY));
    EXPECT_FALSE(can("/dev/zero", O_RDONLY));
    EXPECT_TRUE(can(toolkit_.compiler.library, O_RDONLY));
    EXPECT_TRUE(can(tree_.at("private/own/new"), O_RDWR | O_CREAT));
    EXPECT_TRUE(can(tree_.at("headers/new"), O_RDWR | O_CREAT));
  };
  std::thread([&] {
    ASSERT_TRUE(compile::confine_compile(request, tree_.at("private/own"), {tree_.at("headers")}));
    expect_confined();
    std::thread(expect_confined).join();
    EXPECT_EQ(fs::remove_all(tree_.at("private/own")), 2u);
  }).join();
  EXPECT_TRUE(can(secret_, O_RDONLY)) << "another thread of the process is confined";
  EXPECT_TRUE(can("/dev/zero", O_RDONLY));
}

}  // namespace
}  // namespace kiln::testing
