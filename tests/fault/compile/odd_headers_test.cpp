// Precompiled headers of sources that do odd things or fail to
// compile, with many threads, and on a full disk.
#include <sched.h>
#include <sys/mount.h>

#include <atomic>
#include <mutex>

#include "compile/pch_fixture.hpp"
#include "kiln/error.hpp"
#include "runtime/service_fixture.hpp"
#include "support/nightly.hpp"

namespace kiln::testing {
namespace {

using runtime::Service;

class OddHeaders : public PrecompiledHeaderTest {
 protected:
  /// Compiles specialisation `n` with and without precompiled headers. Image and log must be the same,
  /// or the error must be. Returns the error.
  std::string expect_same_end(WorkerPool& pool, int n, PrecompiledHeaders& headers, const std::string& what) {
    const MadeUnit m = made(n);
    const auto end = [&](WorkerPool& p, PrecompiledHeaders* h, std::string& error) {
      try {
        return compile_in(p, m, h);
      } catch (const CompileError& e) {
        error = e.what();
        return Compiled{};
      }
    };
    std::string with, without;
    const Compiled a = end(pool, &headers, with), b = end(plain_, nullptr, without);
    EXPECT_EQ(with, without) << what;
    expect_same(a, b, what);
    return with;
  }
};

struct OddHeader {
  const char *name, *before, *header, *after, *body;
};

constexpr OddHeader kOddHeaders[] = {
    {"a suppressed diagnostic", "", "#pragma once\n#pragma nv_diag_suppress 177\n#define VALUE 1\n", "",
     "int unused_one = 3; if (N > 2) { int unused_two = N; } out[i] = T(VALUE);"},
    {"warnings of some bodies", "", "#pragma once\n#define VALUE 1\n", "",
     "if constexpr (N % 2 == 0) { unsigned u = threadIdx.x; if (u < 0) out[i] = 3; } out[i] = T(VALUE);"},
    {"counter", "",
     "#pragma once\n#define CAT2(a, b) a##b\n#define CAT(a, b) CAT2(a, b)\n"
     "__device__ inline int CAT(f, __COUNTER__)() { return __COUNTER__; }\n#define VALUE f0()\n",
     "", "out[i] = T(__COUNTER__ + N + VALUE);"},
    {"a macro before it", "#define MODE 7\n",
     "#if MODE == 7\n#define VALUE 77\n#else\n#define VALUE 1\n#endif\n", "", "out[i] = T(VALUE + N);"},
    {"file", "",
     "#pragma once\n__device__ inline const char* where() { return __FILE__; }\n#define VALUE where()[N % "
     "4]\n",
     "", "out[i] = T(VALUE); if (n == 12345) __assert_fail(\"x\", __FILE__, __LINE__, \"k\");"},
    {"a pushed macro", "", "#define VALUE 1\n#pragma push_macro(\"VALUE\")\n#undef VALUE\n#define VALUE 2\n",
     "", "out[i] = T(VALUE + N);\n#pragma pop_macro(\"VALUE\")\n out[i] += VALUE;"},
    {"packing left on", "", "#pragma pack(push, 1)\nstruct P { char c; int i; };\n#define VALUE 1\n", "",
     "struct Q { char c; double d; }; out[i] = T(sizeof(P) + sizeof(Q) + N);"},
    {"a namespace left open", "", "namespace z {\nconstexpr int VALUE = 4;\n", "}\nusing namespace z;\n",
     "out[i] = T(VALUE + N);"},
    {"statics", "",
     "namespace { __device__ int c[8]; } static __constant__ float w[4] = {1, 2, 3, 4};\n"
     "template <int K> __device__ int tab() { static __shared__ int s[K]; s[0] = K; return s[K / 2]; }\n"
     "#define VALUE tab<N>()\n",
     "", "out[i] = T(VALUE + c[N % 8] + w[N % 4]);"},
    {"a warning of the header", "", "#warning \"look here\"\n#define VALUE 1\n", "",
     "out[i] = T(VALUE + N);"},
    {"a warning of its template", "",
     "template <int K> __device__ int h() { unsigned u = K; if constexpr (K > 2) { if (u < 0) return 1; } "
     "return 2; }\n#define VALUE h<N>()\n",
     "", "out[i] = T(VALUE);"},
    {"line", "#line 100 \"other.cu\"\n", "#line 7 \"foo.h\"\n#define VALUE __LINE__\n", "",
     "out[i] = T(VALUE + N); const char* p = __FILE__; out[i] += p[N % 3];"},
    {"include level", "",
     "#ifdef SECOND\n#define VALUE __INCLUDE_LEVEL__\n#else\n#define SECOND\n#include \"a.h\"\n#endif\n", "",
     "out[i] = T(VALUE + N);"},
    {"unroll", "", "#pragma unroll\n#define VALUE 3\n", "",
     "for (int j = 0; j < N; ++j) out[i] += T(VALUE * out[j]);"},
    {"constants computed", "",
     "constexpr int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }\n#define VALUE (fib(18))\n",
     "", "out[i] = T(VALUE + fib(N % 10));"},
    {"globals", "",
     "__device__ int g_state = 5; extern \"C\" __device__ int g2[8];\n#define VALUE (g_state + g2[0])\n", "",
     "out[i] = T(VALUE + N);"},
    {"kernels", "",
     "__global__ void other(int* o) { *o = 1; }\ntemplate <int K> __global__ void other2(int* o) { *o = K; "
     "}\n"
     "template __global__ void other2<4>(int*);\n#define VALUE 3\n",
     "", "out[i] = T(VALUE + N);"},
};

TEST_F(OddHeaders, OddHeadersGiveTheSameBytesAndTheSameLog) {
  KILN_NIGHTLY_ONLY();
  std::size_t used = 0;
  for (const OddHeader& odd : kOddHeaders) {
    tree_.write("t/a.h", odd.header);
    tree_.write("t/scale.cu",
                std::string(odd.before) + "#include \"a.h\"\n" + odd.after + small_source("", odd.body));
    PrecompiledHeaders headers(eager());
    for (int n = 1; n <= 5; ++n)
      expect_same_end(n % 2 ? a_ : b_, n, headers, std::string(odd.name) + " N=" + std::to_string(n));
    const auto counts = headers.counts();
    used += counts.created == 1 && counts.used >= 1;
    std::printf("FIGURES %s: created %d, proven %d, used %d, off %d\n", odd.name,
                static_cast<int>(counts.created), static_cast<int>(counts.proven),
                static_cast<int>(counts.used), static_cast<int>(counts.off));
  }
  EXPECT_GT(used, std::size(kOddHeaders) / 2) << "of most there was none: this test has shown nothing";
}

TEST_F(OddHeaders, ErrorsReadTheSame) {
  tree_.write("t/a.h",
              "#pragma once\n#define VALUE 1\n"
              "template <int K> struct S { static_assert(K != 5, \"five\"); static const int v = K; };\n");
  write_unit("#include \"a.h\"\n",
             "out[i] = T(S<N>::v + VALUE); if constexpr (N == 6) { out[i] = T{}.nothing; }");
  PrecompiledHeaders headers(eager());
  expect_same_in_both(headers, 1, 3, "before");
  const auto used = headers.counts().used;
  EXPECT_GE(used, 1u);
  EXPECT_NE(expect_same_end(a_, 5, headers, "in the header").find("five"), std::string::npos);
  EXPECT_NE(expect_same_end(a_, 6, headers, "in the body").find("nothing"), std::string::npos);
  EXPECT_EQ(expect_same_end(a_, 7, headers, "none"), "");
  EXPECT_GT(headers.counts().used, used);
}

/// Three sources for two architectures need more headers than are kept.
TEST_F(OddHeaders, ManyThreadsThatEvictEachOthersHeadersGetTheSameBytes) {
  KILN_NIGHTLY_ONLY();  // half a minute of both cores
  if (ask_.toolkit.include_dirs.empty()) GTEST_SKIP() << "no toolkit headers on this machine";
  constexpr int kSources = 3, kThreads = 3, kRounds = 4;
  for (int s = 0; s < kSources; ++s) {
    const std::string d = "s" + std::to_string(s);
    tree_.write(d + "/scale.toml", small_manifest("scale"));
    tree_.write(d + "/a.h", "#define VALUE " + std::to_string(s) + "\n");
    tree_.write(d + "/scale.cu", small_source("#include <cuda/std/type_traits>\n#include \"a.h\"\n",
                                              "out[i] = T(N + VALUE + cuda::std::is_same_v<T, int>);"));
  }
  HeaderSettings settings = eager();
  settings.max_count = 4;
  PrecompiledHeaders headers(settings);
  WorkerPool pool({.executable = kWorker, .jobs = 3});
  std::atomic<int> next{1};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Ask ask = ask_;
      for (int r = 0; r < kRounds; ++r) {
        ask.arch = (t + r / 3) % 2 ? "sm_90a" : "sm_80";
        ask.values = {Dtype::f32, next++};
        const MadeUnit m = make_unit(tree_.at("s" + std::to_string((t + r) % kSources)), ask);
        EXPECT_NO_THROW(expect_same(compile_in(pool, m, &headers), compile_in(plain_, m, nullptr), ask.arch));
      }
    });
  }
  for (std::thread& t : threads) t.join();
  const auto counts = headers.counts();
  EXPECT_GE(counts.created, 5u);
  EXPECT_GE(counts.used, 1u);
  EXPECT_LE(counts.held, 4u);
  EXPECT_GE(counts.evicted, 1u);
  std::printf("FIGURES created %d, proven %d, used %d, off %d, evicted %d\n",
              static_cast<int>(counts.created), static_cast<int>(counts.proven),
              static_cast<int>(counts.used), static_cast<int>(counts.off), static_cast<int>(counts.evicted));
}

/// Mounts a small tmpfs for TMPDIR, in a mount namespace of this process.
class SmallTemporaryDirectory {
 public:
  SmallTemporaryDirectory(std::string path, const char* size) : path_(std::move(path)) {
    std::filesystem::create_directories(path_);
    mounted_ = ::unshare(CLONE_NEWNS) == 0 &&
               ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
               ::mount("kiln", path_.c_str(), "tmpfs", 0, size) == 0;
    if (mounted_) ::setenv("TMPDIR", path_.c_str(), 1);
  }
  ~SmallTemporaryDirectory() {
    if (!mounted_) return;
    ::unsetenv("TMPDIR");
    ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallTemporaryDirectory(const SmallTemporaryDirectory&) = delete;
  SmallTemporaryDirectory& operator=(const SmallTemporaryDirectory&) = delete;
  bool mounted() const { return mounted_; }
  bool grow() const { return ::mount("kiln", path_.c_str(), "tmpfs", MS_REMOUNT, "size=900m") == 0; }

 private:
  std::string path_;
  bool mounted_;
};

class PchOnAFullDisk : public ServiceTest {
 protected:
  /// Compiles three kernels while the directory for temporary files is full, and six when it has room again.
  void expect_served(const std::string& name, const char* size) {
    const SmallTemporaryDirectory small(tree_.at("small"), size);
    if (!small.mounted()) GTEST_SKIP() << "only root may mount a tmpfs";
    std::mutex mutex;
    std::vector<std::string> said;
    base::set_log_level("info");
    base::set_log_sink([&](base::Level, std::string_view line) {
      const std::lock_guard lock(mutex);
      if (line.find("no precompiled header for this source") != std::string_view::npos)
        said.emplace_back(line);
    });
    Service service(options());
    for (int n = 1; n <= 3; ++n) EXPECT_NO_THROW(compile(service, name, {Dtype::f32, n})) << n;
    base::set_log_sink({});
    base::set_log_level("warning");
    EXPECT_EQ(said.size(), 1u) << "none was tried: this test has shown nothing";
    for (const std::string& line : said) std::printf("FIGURES %s\n", line.c_str());
    ASSERT_TRUE(small.grow());
    for (int n = 1; n <= 6; ++n)
      EXPECT_NO_THROW(compile(service, name, {Dtype::f32, n})) << "room again, " << n;
    EXPECT_EQ(service.core().state().counters.remembered_failures, 0u);
    EXPECT_EQ(service.core().state().counters.compile_failures, 0u);
  }
};

TEST_F(PchOnAFullDisk, IsNoFaultOfASourceWithHeadersOfItsOwn) {
  tree_.write("t/many.toml", small_manifest("many"));
  std::string includes;
  for (int i = 0; i < 70; ++i) {  // enough headers for a precompiled header
    const std::string header = "m" + std::to_string(i) + ".h";
    includes += "#include \"" + header + "\"\n";
    std::string text;
    for (int k = 0; k < 200; ++k)
      text += "template <class T> struct S" + std::to_string(i) + '_' + std::to_string(k) +
              " { T a, b; __device__ T f(T x) { return a * x + b; } };\n";
    tree_.write("t/" + header, text);
  }
  tree_.write("t/many.cu", small_source(includes, "S3_4<T> s{T(N), T(1)}; out[i] = s.f(out[i]);"));
  expect_served("many", "size=1m");
}

TEST_F(PchOnAFullDisk, IsNoFaultOfASourceWithTheToolkitsHeaders) {
  KILN_NIGHTLY_ONLY();
  if (toolkit_.include_dirs.empty()) GTEST_SKIP() << "no toolkit headers on this machine";
  tree_.write("t/heavy.toml", small_manifest("heavy"));
  tree_.write("t/heavy.cu", small_source("#include <cub/block/block_reduce.cuh>\n",
                                         "using R = cub::BlockReduce<float, 64>; __shared__ typename "
                                         "R::TempStorage s; out[i] = T(R(s).Sum(float(out[i])) + N);"));
  expect_served("heavy", "size=50m");
}

}  // namespace
}  // namespace kiln::testing
