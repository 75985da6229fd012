// Compiles sources that NVRTC refuses. The error must name the construct and say what to do.
#include "compile/fixture.hpp"
#include "support/places.hpp"

namespace kiln::testing {
namespace {

struct Refused {
  std::string name, source, compile, instantiate;  ///< `compile`: lines of [compile]
  std::vector<std::string> said;                   ///< texts that the hints must contain
  std::string arch = "sm_90a";
};

std::ostream& operator<<(std::ostream& out, const Refused& refused) { return out << refused.name; }

std::string kernel(const std::string& body, const std::string& before = "") {
  return before + "\n__global__ void k(int* o) { " + body + " }\n";
}

std::string wide_wgmma() {
  std::string registers, operands;
  for (int i = 0; i < 128; ++i) {
    registers += (i ? ", %" : "%") + std::to_string(i);
    operands += std::string(i ? ", " : "") + "\"+f\"(d[" + std::to_string(i) + "])";
  }
  return "__global__ void __launch_bounds__(1024) k(float* o, unsigned long long a) {\n  float d[128] = {};\n"
         "  asm volatile(\"wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" +
         registers + "}, %128, %128, 1, 1, 1, 0, 0;\" : " + operands +
         " : \"l\"(a));\n  for (int i = 0; i < 128; ++i) o[i] = d[i];\n}\n";
}

std::vector<Refused> refused() {
  const std::string device = "default_device = true";
  return {
      {"StandardHeader",
       kernel("", "#include <cstdio>"),
       "",
       "k",
       {"'cstdio' (line 1 of bad.cu)", "host_headers = \"shim\""}},
      {"Vector", kernel("", "#include <vector>"), "", "k", {"'vector'", "host_headers = \"shim\""}},
      {"DriverHeader",
       kernel("", "#include <cuda.h>"),
       "",
       "k",
       {"'stdlib.h' (line", "of cuda.h)", "host_headers = \"shim\""}},
      {"Torch",
       kernel("", "#include <torch/extension.h>"),
       "",
       "k",
       {"'torch/extension.h'", "host side", "host_code = \"cut\"", "replace = { \"torch/extension.h\""}},
      {"OtherHeader",
       kernel("", "#include \"exception.h\""),
       "",
       "k",
       {"'exception.h'", "include_dirs", "replace = { \"exception.h\""}},
      {"HostFunction",
       kernel("*o = f(1);", "int f(int a) { return a; }"),
       "",
       "k",
       {"'f' (line 1 of bad.cu)", "default_device = true"}},
      {"MarkedHost",
       kernel("*o = f(1);", "__host__ int f(int a) { return a; }"),
       device,
       "k",
       {"'f' (line 1 of bad.cu) is marked __host__"}},
      {"HostVariable",
       kernel("*o = table[1];", "int table[2] = {1, 2};"),
       "",
       "k",
       {"'table' (line 1 of bad.cu)", "default_device = true"}},
      {"Launch",
       kernel("*o = 1;") + "void run(int* o) { k<<<1, 32>>>(o); }\n",
       device,
       "k",
       {"<<<...>>> (line 3 of bad.cu)", "another file"}},
      {"LaunchUnmarked",
       kernel("*o = 1;") + "void run(int* o) { k<<<1, 32>>>(o); }\n",
       "",
       "k",
       {"'run' (line 3 of bad.cu)", "launch kernels"}},
      {"Main",
       kernel("*o = 1;") + "int main() { return 0; }\n",
       "",
       "k",
       {"'main' (line 3 of bad.cu) is host code", "another file"}},
      {"Throw", kernel("if (!o) throw 1;"), "", "k", {"no exceptions", "line 2 of bad.cu", "replace = "}},
      {"Try", kernel("try { *o = 1; } catch (...) {}"), "", "k", {"no exceptions"}},
      {"Int128", kernel("__int128 a = *o; *o = int(a * a);"), "", "k", {"options = [\"--device-int128\"]"}},
      {"StdMember",
       kernel("*o = std::min(*o, 3);"),
       "",
       "k",
       {"'std::min' (line 2 of bad.cu)", "<algorithm>", "host_headers"}},
      {"StdUnknown", kernel("std::regex r;"), "", "k", {"'std::regex'", "cuda::std::regex"}},
      {"FixedWidth",
       "__global__ void k(uint32_t* o) { *o = 1; }\n",
       "",
       "k",
       {"'uint32_t' (line 1 of bad.cu)", "<cstdint>"}},
      {"Infinity", kernel("*o = INFINITY > 0;"), "", "k", {"'INFINITY'", "<cmath>"}},
      {"Bfloat16", "__global__ void k(__nv_bfloat16* o) {}\n", "", "k", {"preinclude = [\"cuda_bf16.h\"]"}},
      {"Typeid",
       kernel("*o = typeid(int) == typeid(float);"),
       "",
       "k",
       {"no run-time type information", "typeid (line 2 of bad.cu)"}},
      {"DynamicCast",
       "struct A { __device__ virtual ~A() {} };\nstruct B : A {};\n__global__ void k(int* o, A* a) { *o = "
       "dynamic_cast<B*>(a) != nullptr; }\n",
       "",
       "k",
       {"no run-time type information"}},
      {"ThreadLocal", kernel("static thread_local int x; *o = x;"), "", "k", {"no thread_local"}},
      {"StaticLocal",
       kernel("static int s = *o; *o = s;"),
       "",
       "k",
       {"'s' (line 2 of bad.cu)", "constant initialiser"}},
      {"DynamicGlobal",
       kernel("*o = g;", "__device__ int f() { return clock(); }\n__device__ int g = f();"),
       "",
       "k",
       {"'g' (line 2 of bad.cu)", "constant initialiser"}},
      {"HostPrint", kernel("fprintf(stderr, \"x\");"), "", "k", {"is host code"}},
      {"RuntimeCall",
       kernel("") + "void f() { void* p; cudaMalloc(&p, 4); }\n",
       "",
       "k",
       {"'cudaMalloc' (line 3 of bad.cu) is host code"}},
      {"MinimalTexture",
       "__global__ void k(float* o, cudaTextureObject_t t) { *o = tex2D<float>(t, 0, 0); }\n",
       "minimal = true",
       "k",
       {"minimal = true in [compile] leaves out 'cudaTextureObject_t'"}},
      {"MinimalCub",
       kernel("", "#include <cub/block/block_reduce.cuh>"),
       "minimal = true",
       "k",
       {"minimal = true in [compile] leaves out 'cudaError_t'"}},
      {"DeviceLaunch",
       "__global__ void c(int* o) {}\n" + kernel("c<<<1, 1>>>(o);"),
       "",
       "k",
       {"<<<...>>>", "relocatable code"}},
      {"Undefined",
       kernel("*o = f(1);", "extern __device__ int f(int);"),
       "",
       "k",
       {"'f(int)' is declared and not defined"}},
      {"Lambda",
       "template <class F> __global__ void k(int* o, F f) { f(o); }\n__device__ auto f = [](int* p) { *p = "
       "1; };\n",
       device,
       "k<decltype(f)>",
       {"a lambda", "kind \"type\""}},
      {"ExtendedLambda",
       kernel("") + "void g(int* o) { auto f = [] __device__(int* p) { *p = 1; }; }\n",
       "",
       "k",
       {"a lambda (line 3 of bad.cu)"}},
      {"WrongArguments",
       "template <int N> __global__ void k(int* o) { *o = N; }\n",
       "",
       "k<int>",
       {"'k<int>', which does not fit the template 'k'"}},
      {"WrongName",
       "namespace a { template <int N> __global__ void k(int* o) { *o = N; } }\n",
       "",
       "k<3>",
       {"declares no 'k'", "ns::k"}},
      {"WrongMember",
       "namespace a { template <int N> __global__ void k(int* o) { *o = N; } }\n",
       "",
       "a::q<3>",
       {"has no 'q'"}},
      {"Overloads",
       "template <int N> __global__ void k(int* o) {}\ntemplate <int N> __global__ void k(float* o) {}\n",
       "",
       "k<3>",
       {"several overloads", "(void(*)(float*))"}},
      {"WrongNamespace",
       "namespace a { template <int N> __global__ void k(int* o) { *o = N; } }\n",
       "",
       "b::k<3>",
       {"'b::k<3>'", "namespaces or classes does not exist"}},
      {"GlobalThatIsNone",
       kernel("*o = 1;"),
       "[[global]]\nname = \"table\"\nsymbol = \"ns::table\"",
       "k",
       {"the symbol 'ns::table' of a [[global]]"}},
      {"RealExport",
       kernel("*o = 1;"),
       "[export]\nSIZE = \"sizeof(ns::nothing)\"",
       "k",
       {"the export 'SIZE' must be an integer constant expression"}},
      {"NoTemplate", kernel("*o = 1;"), "", "k<3>", {"no template", "angle brackets"}},
      {"NoKernel",
       "template <int N> __device__ void k(int* o) { *o = N; }\n",
       "",
       "k<3>",
       {"no __global__ function"}},
      {"SharedMemory",
       "__global__ void k(float* o) { __shared__ float s[20000]; s[threadIdx.x] = *o; __syncthreads(); *o = "
       "s[threadIdx.x ^ 1]; }\n",
       "",
       "k",
       {"__shared__ variables take 80000 bytes, and 49152", "smem in [launch]"},
       "sm_80"},
      {"ConstantMemory",
       "__constant__ float c[20000];\n__global__ void k(float* o) { *o = c[threadIdx.x]; }\n",
       "",
       "k",
       {"__constant__ variables take 80000 bytes, and 65536 are allowed"}},
      {"Arguments",
       "struct B { char x[40000]; };\n__global__ void k(char* o, B b) { *o = b.x[threadIdx.x]; }\n",
       "",
       "k",
       {"arguments are too large", "40008 bytes required"}},
      {"Registers", wide_wgmma(), "", "k", {"64 registers", "-maxrregcount"}},
      {"WgmmaOn80",
       kernel("asm volatile(\"wgmma.fence.sync.aligned;\");"),
       "",
       "k",
       {"'wgmma.fence' does not exist on sm_80", "only = [\"sm_90a\"]", "[arch.sm_80]"},
       "sm_80"},
      {"TensorMemoryOn90",
       kernel("asm volatile(\"tcgen05.fence::before_thread_sync;\");"),
       "",
       "k",
       {"'tcgen05.fence'", "only = [\"sm_100f\"]"}},
      {"TensorMemoryOnTheBaseOf100",
       kernel("asm volatile(\"tcgen05.fence::before_thread_sync;\");"),
       "",
       "k",
       {"'tcgen05.fence' does not exist on sm_100_base", "only = [\"sm_100f\"]"},
       "sm_100_base"},
      {"TensorMemoryOnAnotherFamily",
       kernel("asm volatile(\"tcgen05.fence::before_thread_sync;\");"),
       "",
       "k",
       {"'tcgen05.fence' does not exist on sm_120f", "only = [\"sm_100f\"]"},
       "sm_120f"},
      {"NarrowFloatsOnTheBaseOf120",
       kernel("float d; asm volatile(\"mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e4m3.e2m1.f32 "
              "{%0,%0,%0,%0},{%1,%1,%1,%1},{%1,%1},{%0,%0,%0,%0};\" : \"=f\"(d) : \"r\"(0));"),
       "",
       "k",
       {"does not exist on sm_120_base", "features = \"family\", or else \"exact\""},
       "sm_120_base"},
      {"ClusterOn80",
       kernel("asm volatile(\"barrier.cluster.arrive.aligned;\");"),
       "",
       "k",
       {"arch = { min = \"sm_90\" }"},
       "sm_80"},
      {"UnknownInstruction",
       kernel("asm volatile(\"foo.bar %0;\" ::\"l\"(o));"),
       "",
       "k",
       {"the instruction 'foo'"}},
      {"Concept",
       "template <class T> concept C = sizeof(T) > 2;\n" + kernel(""),
       "",
       "k",
       {"line 1 of bad.cu needs C++20", "std = \"c++20\""}},
      {"OldStandard",
       kernel("", "#include <cub/block/block_reduce.cuh>"),
       "std = \"c++14\"",
       "k",
       {"needs C++17", "std = \"c++17\""}},
      {"DeviceWideCub",
       kernel("", "#include <cub/device/device_reduce.cuh>"),
       "",
       "k",
       {"has a host side", "cub/block"}},
      {"NoExport",
       kernel("") + "#line 1 \"[export] SIZE\"\n__device__ constexpr long long size_of = sizeof(T);\n",
       "",
       "k",
       {"the export 'SIZE' must be an integer constant expression"}},
      {"ExportNotConstant",
       kernel("", "__device__ int f();") +
           "#line 1 \"[export] SIZE\"\n__device__ constexpr long long size_of = f();\n",
       "",
       "k",
       {"the export 'SIZE' must be an integer constant expression"}},
      {"CompilerCrash",
       "template <class T> __global__ void k(undeclared_t* o) { *o = sizeof(T); }\n",
       "",
       "k<int>",
       {"of a type that is not declared", "'k<int>'"}},
      {"PtxasCrash",
       "__global__ void k(float* o) {\n  float d[4] = {};\n  asm "
       "volatile(\"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %4, 1, 1, 1, 0, "
       "0;\" : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3]) : \"l\"(0ull));\n  *o = d[0];\n}\n",
       "",
       "k",
       {"wgmma with a constant descriptor"}},
  };
}

class AdviceOnSource : public ::testing::TestWithParam<Refused> {};

TEST_P(AdviceOnSource, NamesTheConstructAndSaysWhatToDo) {
  KILN_REAL_TOOLKIT(toolkit);
  const Refused& bad = GetParam();
  Tree tree;
  tree.write("t/bad.toml", "format = 1\n[template]\nname = \"bad\"\nsource = \"bad.cu\"\ninstantiate = \"" +
                               bad.instantiate + "\"\narch = { min = \"sm_75\", features = \"" +
                               std::string(to_string(base::Arch::parse(bad.arch).features)) +
                               "\" }\n[compile]\n" + bad.compile +
                               "\n[launch]\ngrid = [\"1\"]\nblock = [\"1\"]\n");
  tree.write("t/bad.cu", bad.source);
  Ask ask;
  ask.name = "bad", ask.values = {}, ask.arch = bad.arch, ask.toolkit = toolkit;
  const MadeUnit made = make_unit(tree.at("t"), ask);
  compile::WorkerPool pool({.executable = std::string(places::kBuildDirectory) + "/kiln-worker", .jobs = 1});
  try {
    compile::compile({made.unit, made.closure, made.made}, toolkit, pool,
                     {.compile_limit = std::chrono::seconds(120)});
    FAIL() << "it was compiled";
  } catch (const CompileError& error) {
    const std::string message = error.what();
    const auto at = message.find("\nhint: ");
    ASSERT_NE(at, std::string::npos) << message;
    const std::string hints = message.substr(at);
    for (const std::string& text : bad.said)
      EXPECT_NE(hints.find(text), std::string::npos) << text << '\n' << message;
    EXPECT_EQ(hints.find(tree.path()), std::string::npos);
    EXPECT_EQ(error.log().find("hint: "), std::string::npos) << "the log is the compiler's";
  }
}

INSTANTIATE_TEST_SUITE_P(Sources, AdviceOnSource, ::testing::ValuesIn(refused()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace kiln::testing
