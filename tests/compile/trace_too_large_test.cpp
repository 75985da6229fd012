// ptxas reads the front end's trace again, and refuses one of gigabytes: the compile goes on without, and
// what was read comes from a pass over the syntax.
#include <dlfcn.h>
#include <unistd.h>

#include "compile/nvrtc_program.hpp"
#include "fixture.hpp"

namespace {
int g_dirty = 0;  // memory files that are made with something in them, which is refused in the same words
}

extern "C" int memfd_create(const char* name, unsigned flags) noexcept {
  static const auto real =
      reinterpret_cast<int (*)(const char*, unsigned)>(::dlsym(RTLD_NEXT, "memfd_create"));
  const int fd = real(name, flags);
  if (fd >= 0 && g_dirty > 0) {
    --g_dirty;
    if (::write(fd, "no trace", 8) != 8) return -1;
  }
  return fd;
}

namespace kiln::testing {
namespace {

using compile::WorkerResponse;

TEST(TraceTooLarge, IsDoneWithoutAndTheHeadersAreKnownAllTheSame) {
  KILN_REAL_TOOLKIT(toolkit);
  Tree tree;
  tree.write("t/hidden.h", "#define VALUE 3\n");
  tree.write("t/plain.h", "template <int N> __global__ void f(int* out) { *out = VALUE + N; }\n");
  compile::WorkerRequest request;
  request.nvrtc = toolkit.nvrtc;
  request.nvrtc_builtins = toolkit.nvrtc_builtins;
  request.program_name = std::string(compile::kProgramDirectory) + "f.cu";
  request.source = "#define NAME <hidden.h>\n#include NAME\n#include <plain.h>\n";
  request.roots = {{".k0", tree.at("t")}};
  request.arch = "sm_90a";
  request.name_expressions = {"f<4>"};
  request.trace_headers = true;

  const WorkerResponse plain = compile::run_nvrtc(request, compile::WorkingDirectory::of_thread);
  ASSERT_EQ(plain.status, WorkerResponse::Status::ok) << plain.log;
  g_dirty = 1;
  const WorkerResponse refused = compile::run_nvrtc(request, compile::WorkingDirectory::of_thread);
  EXPECT_EQ(g_dirty, 0) << "the trace was a memory file";
  ASSERT_EQ(refused.status, WorkerResponse::Status::ok) << refused.log << refused.message;
  EXPECT_EQ(refused.image, plain.image);
  EXPECT_EQ(refused.lowered_names, plain.lowered_names);
  EXPECT_EQ(refused.headers_read, plain.headers_read);
  EXPECT_EQ(refused.headers_read.size(), 2u);
}

}  // namespace
}  // namespace kiln::testing
