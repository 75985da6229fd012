// A ready kernel costs no allocation, no system call and no driver call.
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <new>

#include "runtime/fake_runtime.hpp"

namespace {
thread_local std::size_t t_allocations = 0;
void* allocate(std::size_t size) {
  ++t_allocations;
  if (void* p = std::malloc(size ? size : 1)) return p;
  throw std::bad_alloc();
}
}  // namespace

// These replace the library's operators, too: the executable's definitions are found first.
void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++t_allocations;
  return std::malloc(size ? size : 1);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

namespace kiln::testing {
namespace {

class Ready : public FakeRuntime {};

template <class Body>
std::size_t allocations(Body&& body) {
  const std::size_t before = t_allocations;
  body();
  return t_allocations - before;
}

TEST_F(Ready, TheLibrarysAllocationsAreCountedHere) {
  EXPECT_GT(allocations([&] { Service service(options()); }), 10u);
}

TEST_F(Ready, GetAndTryGetAllocateNothing) {
  Service service(options());
  const KernelTemplate t = service.open("rms_norm");
  const Kernel k = t.get(Dtype::bf16, 4096);
  t.get("bf16", 4096);
  bool same = true;
  EXPECT_EQ(allocations([&] {
              for (int i = 0; i < 100; ++i) {
                same = same && t.get(Dtype::bf16, 4096).handle() == k.handle();
                same = same && t.get("bf16", 4096).handle() == k.handle();
                same = same && t.try_get(Dtype::bf16, 4096).handle() == k.handle();
                same = same && !t.try_get(Dtype::f16, 4096);
              }
            }),
            0u);
  EXPECT_TRUE(same);
}

TEST_F(Ready, GetOrFallbackAllocatesNothingBeforeAndAfterAdopt) {
  Service service(options());
  const auto scale = [&](const std::string& name, const std::string& more) {
    service.add_template("format = 1\n[template]\nname = \"" + name + "\"\nsource = \"" + name +
                             ".cu\"\ninstantiate = \"f<{N}>\"\n" + more +
                             "[param.N]\nkind = \"int\"\nrange = [1, 100]\n[[arg]]\nname = \"out\"\n"
                             "type = \"ptr<f32>\"\n[launch]\ngrid = [\"1\"]\nblock = [\"64\"]\n",
                         "template <int N> __global__ void f(float* out) { *out = N; }");
  };
  scale("slow", ""), scale("fast", "fallback = \"slow\"\n");
  const KernelTemplate t = service.open("fast");
  service.open("slow").get(2);
  const Kernel generic = t.get_or_fallback(2);
  const Kernel specialised = t.get(2);
  const auto hits = [&](const Kernel& expected) {
    bool same = true;
    std::size_t allocated = 0;
    EXPECT_EQ(driver_calls_here([&] {
                allocated = allocations([&] {
                  for (int i = 0; i < 100; ++i)
                    same = same && t.get_or_fallback(2).handle() == expected.handle();
                });
              }),
              0u);
    EXPECT_EQ(allocated, 0u);
    EXPECT_TRUE(same);
  };
  hits(generic);
  EXPECT_EQ(service.adopt(), 1u);
  hits(specialised);
}

TEST_F(Ready, ALaunchAllocatesNothingInKiln) {
  Service service(options());
  const Kernel k = service.open("rms_norm").get(Dtype::bf16, 4096);
  RmsNormCall()(k);
  kiln_fake_quiet(1);  // the fake driver records nothing, and so allocates nothing
  EXPECT_EQ(allocations([&] {
              for (int i = 0; i < 100; ++i) RmsNormCall()(k);
            }),
            0u);
  kiln_fake_quiet(0);
}

TEST_F(Ready, AListOfTypesIsCheckedOncePerKernelAlsoWhenListsAlternate) {
  Service service(options());
  const KernelTemplate t = service.open("rms_norm");
  const Kernel a = t.get(Dtype::bf16, 4096), b = t.get(Dtype::f16, 4096);
  kiln_fake_quiet(1);
  RmsNormCall c;
  const auto exact = [&](const Kernel& k) { c(k); };
  const auto converted = [&](const Kernel& k) { k(nullptr, c.out, c.x, c.w, 8, 4096, 4096, 1e-6); };
  for (const Kernel& k : {a, b}) {
    EXPECT_GT(allocations([&] { exact(k); }), 0u) << "remembering it; another kernel's check does not count";
    EXPECT_GT(allocations([&] { converted(k); }), 0u);
  }
  EXPECT_EQ(allocations([&] {
              for (int i = 0; i < 100; ++i) exact(a), converted(a), converted(b), exact(b);
            }),
            0u);
  kiln_fake_quiet(0);
}

TEST_F(Ready, ALaunchIsOneDriverCall) {
  Service service(options());
  const Kernel k = service.open("rms_norm").get(Dtype::bf16, 4096);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(driver_calls([&] { RmsNormCall()(k); }), 1u);
}

TEST_F(Ready, GetMakesNoSystemCallAlsoWhileRecording) {
  Options recording = options();
  recording.record = recording.cache_dir + ".record";
  Service service(recording);
  const KernelTemplate t = service.open("rms_norm");
  const Kernel k = t.get(Dtype::bf16, 4096);
  ASSERT_EQ(::access(recording.record.c_str(), R_OK), 0);  // the request was recorded
  const pid_t child = ::fork();
  if (child == 0) {
    // From here on any system call but read, write, exit and sigreturn kills the process.
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) ::_exit(77);
    bool same = true;
    for (int i = 0; i < 1000; ++i) {
      same = same && t.get(Dtype::bf16, 4096).handle() == k.handle();
      same = same && t.try_get(Dtype::bf16, 4096).handle() == k.handle();
    }
    ::syscall(SYS_exit, same ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no seccomp here";
  EXPECT_FALSE(WIFSIGNALED(status)) << "killed by signal " << WTERMSIG(status) << ": it made a system call";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace kiln::testing
