// The declarations that kiln import reads: many real ones, and text that is no declaration.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "base/text.hpp"
#include "kiln/error.hpp"
#include "manifest/manifest.hpp"
#include "support/nightly.hpp"
#include "support/places.hpp"
#include "tools/kiln/import/arguments.hpp"
#include "tools/kiln/import/draft.hpp"
#include "tools/kiln/import/manifest.hpp"

namespace kiln::cli {
namespace {

SourceTexts texts_of(const std::string& text, const Assignments& define = {}) {
  return SourceTexts({{"k.cuh", text}}, define);
}
std::vector<KernelDeclaration> kernels_in(const std::string& text, const Assignments& define = {}) {
  return kernels_of(texts_of(text, define));
}
std::vector<std::string> names_in(const std::string& text, const Assignments& define = {}) {
  std::vector<std::string> out;
  for (const KernelDeclaration& kernel : kernels_in(text, define)) out.push_back(kernel.qualified());
  return out;
}
using Names = std::vector<std::string>;

ImportDraft drafted(const std::string& text, const Assignments& given = {}) {
  const SourceTexts texts = texts_of(text);
  const std::vector<KernelDeclaration> kernels = kernels_of(texts);
  if (kernels.size() != 1) throw std::runtime_error("not one kernel in: " + text);
  ImportDraft out = draft_of(kernels[0], texts, false, given);
  draft_arguments(out, nullptr);
  out.name = "k";
  return out;
}
/// The arguments as text, such as "ptr<T> x, i32 n".
std::string arguments_of(const std::string& text) {
  std::string out;
  for (const ImportArgument& a : drafted(text).arguments)
    out += (out.empty() ? "" : ", ") + a.type + ' ' + a.name;
  return out;
}
/// The parameters as text, such as "dtype T, int N = 4".
std::string parameters_of(const std::string& text) {
  std::string out;
  for (const ImportParameter& p : drafted(text).parameters)
    out += (out.empty() ? "" : ", ") + std::string(name_of(p.kind)) + ' ' + p.name +
           (p.fallback.empty() ? "" : " = " + p.fallback);
  return out;
}
std::string refusal(const std::string& text, const Assignments& given = {}) {
  try {
    drafted(text, given);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(ImportDeclaration, FindsKernelsInNamespaces) {
  EXPECT_EQ(names_in("__global__ void k() {}"), Names{"k"});
  EXPECT_EQ(names_in("namespace a::b { namespace c { __global__ void k(); } }"), Names{"a::b::c::k"});
  EXPECT_EQ(names_in("namespace a { namespace { __global__ void k() {} } }"), Names{"a::k"});
  EXPECT_EQ(names_in("namespace a { inline namespace v1 { __global__ void k() {} } }"), Names{"a::k"});
  EXPECT_EQ(names_in("namespace a::inline v1 { __global__ void k() {} }"), Names{"a::k"});
  EXPECT_EQ(names_in("namespace [[deprecated]] a __attribute__((x)) { __global__ void k() {} }"),
            Names{"a::k"});
  EXPECT_EQ(names_in("extern \"C\" { __global__ void k() {} } extern \"C\" __global__ void l() {}"),
            (Names{"k", "l"}));
  EXPECT_EQ(names_in("namespace a { struct S { int x; }; void f() { if (1) {} } } __global__ void k() {}"),
            Names{"k"});
  EXPECT_EQ(names_in("__global__ void ns::k(int) {}"), Names{"ns::k"});
}

TEST(ImportDeclaration, SkipsWhatIsNoCode) {
  EXPECT_EQ(names_in("// __global__ void a();\n/* __global__ void b(); */ __global__ void k();"), Names{"k"});
  EXPECT_EQ(names_in("const char* s = \"__global__ void a();\"; char c = '\"'; __global__ void k();"),
            Names{"k"});
  EXPECT_EQ(names_in("auto s = R\"x(}} __global__ void a(); )\" )x\"; __global__ void k();"), Names{"k"});
  EXPECT_EQ(names_in("#define M __global__ void a() {\n__global__ void k();"), Names{"k"});
  EXPECT_EQ(names_in("#define M \\\n __global__ void a() {\n__global__ void k();"), Names{"k"});
  EXPECT_EQ(names_in("// a comment that goes on \\\n__global__ void a();\n__global__ void k();"), Names{"k"});
  EXPECT_EQ(names_in("#if 0\n__global__ void a() {\n#endif\n__global__ void k() {}"), Names{"k"});
  EXPECT_EQ(names_in("int n = 1'000'000; __global__ void k() {}"), Names{"k"});
}

TEST(ImportDeclaration, ReadsBothBranchesOfAConditional) {
  EXPECT_EQ(names_in("#ifdef A\n__global__ void a() {}\n#else\n__global__ void b() {}\n#endif\n"),
            (Names{"a", "b"}));
}

TEST(ImportDeclaration, KnowsAttributesAndMacros) {
  for (const char* text :
       {"__global__ void __launch_bounds__(256, 2) k(float* x) {}", "void __global__ k(float* x) {}",
        "__launch_bounds__(256) __global__ void k(float* x) {}",
        "static inline __global__ void k(float* x) {}",
        "__global__ __launch_bounds__(256)\nvoid\nk(\nfloat* x\n)\n{}",
        "[[maybe_unused]] __global__ void k(float* x) {}", "__global__ void MY_BOUNDS(128) k(float* x) {}",
        "__global__ void k(float* x) __launch_bounds__(64) {}",
        "#define KERNEL static __global__\nKERNEL void k(float* x) {}",
        "SOME_MACRO(a, b)\n__global__ void k(float* x) {}",
        "__attribute__((noinline)) __global__ void __cluster_dims__(2, 1, 1) k(float* x) {}"}) {
    EXPECT_EQ(names_in(text), Names{"k"}) << text;
    EXPECT_EQ(arguments_of(text), "ptr<f32> x") << text;
  }
  const SourceTexts texts =
      texts_of("__global__ void __cluster_dims__(2, 1) __launch_bounds__(sizeof(int), 2) k() {}");
  const KernelDeclaration kernel = kernels_of(texts).at(0);
  ASSERT_EQ(kernel.bounds.size(), 2u);
  EXPECT_EQ(joined(kernel.bounds[0]), "sizeof(int)");
  EXPECT_EQ(kernel.cluster.size(), 2u);
}

TEST(ImportDeclaration, ExpandsMacrosThatSayGlobal) {
  for (const char* text :
       {"#define KERNEL __global__ void\nKERNEL k(float* x) {}",
        "#define KERNEL __global__ __launch_bounds__(256)\nKERNEL void k(float* x) {}",
        "#define KERNEL extern \"C\" __global__ void __launch_bounds__(256)\nKERNEL k(float* x) {}",
        "#define GLOBAL __global__\n#define KERNEL static GLOBAL void\nKERNEL k(float* x) {}",
        "#ifndef KERNEL\n#define KERNEL __global__ \\\n void\n#endif\nKERNEL k(float* x) {}"}) {
    EXPECT_EQ(names_in(text), Names{"k"}) << text;
    EXPECT_EQ(arguments_of(text), "ptr<f32> x") << text;
  }
  EXPECT_EQ(kernels_in("#define KERNEL __global__\n\nKERNEL void\nk();").at(0).line, 4);
}

TEST(ImportDeclaration, MacrosThatAreGivenHold) {
  EXPECT_EQ(names_in("LIB_GLOBAL void k() {}"), Names{});
  EXPECT_EQ(names_in("LIB_GLOBAL void k() {}", {{"LIB_GLOBAL", "__global__"}}), Names{"k"});
  EXPECT_EQ(names_in("LIB_GLOBAL k() {}", {{"LIB_GLOBAL", "__global__ void"}}), Names{"k"});
  EXPECT_EQ(names_in("__global__ void NAME() {}", {{"NAME", "k_v2"}}), Names{"k_v2"});
  EXPECT_EQ(names_in("OFF __global__ void k() {}", {{"OFF", ""}}), Names{"k"});
}

TEST(ImportDeclaration, MacrosOfMacrosEnd) {
  std::string text = "#define M0 M1\n#define M1 M0 __global__\n";
  EXPECT_EQ(names_in(text + "M0 void k();"), Names{"k"});
  std::string nested;
  for (int i = 0; i < 20000; ++i) nested += "#define A ";
  EXPECT_EQ(names_in(nested + "\n__global__ void k();"), Names{"k"});
}

TEST(ImportDeclaration, ExpandsMacrosThatDeclareKernels) {
  const std::string flash =
      "#define KERNEL(name, ...) \\\n  template <typename T, __VA_ARGS__> __global__ void "
      "name##_kernel(const T* x, int n)\n"
      "namespace a {\n\nKERNEL(flash, bool CAUSAL, int N = 4) { T::member; }\n}\n";
  const std::vector<KernelDeclaration> kernels = kernels_in(flash);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].qualified(), "a::flash_kernel");
  EXPECT_EQ(kernels[0].line, 5);
  EXPECT_TRUE(kernels[0].defined);
  EXPECT_TRUE(kernels[0].members.contains("T"));
  EXPECT_EQ(parameters_of(flash), "dtype T, bool CAUSAL, int N = 4");
  EXPECT_EQ(arguments_of(flash), "ptr<T> x, i32 n");
  EXPECT_EQ(names_in("#define KERNEL(name, op) __global__ void name(float* x) { x[0] op; }\nKERNEL(add, += "
                     "1)\nKERNEL(sub, -= 1);"),
            (Names{"add", "sub"}));
}

TEST(ImportDeclaration, AMacroThatDeclaresItselfEnds) {
  EXPECT_EQ(names_in("#define K(x) K(x) __global__ void x()\nK(k) {}"), Names{"k"});
  std::string text = "#define K(x) __global__ void x(" + std::string(100000, 'a') + ") {}\n";
  for (int i = 0; i < 1000; ++i) text += "K(k" + std::to_string(i) + ")\n";
  EXPECT_LT(names_in(text).size(), 1000u) << "the text of all declarations is limited";
}

TEST(ImportDeclaration, ReadsAFileWithManyKernels) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "__global__ void k" + std::to_string(i) + "(int* p) { *p = 1; }\n";
  EXPECT_EQ(names_in(text).size(), 20000u);
}

TEST(ImportDeclaration, FindsTheHeadersThatAConditionCanReach) {
  const SourceTexts texts(
      {{"/p/k.cu",
        "#if defined(USE_HIP)\n#define DECL_HIP\n#elif 1\n#define DECL_CUDA\n#endif\n#include \"common.h\"\n"
        "#define HIP 0\n#if HIP\n#include <hip.h>\n#endif\n#ifdef GIVEN\n#include <given.h>\n#endif\n"
        "#if !defined(NONE) && (CUDART_VERSION >= 12000 || defined(OTHER))\n#include <yes.h>\n#else\n"
        "#include <maybe.h>\n#endif\n#ifndef NONE\n#include <always.h>\n#else\n#include <never.h>\n#endif\n"},
       {"/p/common.h",
        "#pragma once\n#ifdef DECL_HIP\n#include <hip_fp16.h>\n#elif defined(DECL_CUDA)\n#include "
        "<cuda_fp16.h>\n"
        "#endif\n"},
       {"/p/other.h", "#include <nobody.h>\n"}},
      {{"GIVEN", "1"}});
  EXPECT_EQ(texts.included_headers(),
            (std::set<std::string>{"always.h", "common.h", "cuda_fp16.h", "given.h", "maybe.h", "yes.h"}));
  for (const char* damaged :
       {"#if\n", "#if (\n", "#if !(a && \n#else\n#else\n", "#endif\n", "#elif x\n", "#if )\n"})
    EXPECT_NO_FATAL_FAILURE(SourceTexts({{"k.cu", damaged}}, {}).included_headers()) << damaged;
}

TEST(ImportDeclaration, TellsDeclarationsFromOtherThings) {
  EXPECT_EQ(names_in("template <int N> __global__ void k(); template <> __global__ void k<3>() {}"),
            Names{"k"});
  EXPECT_EQ(names_in("template <int N> __global__ void k() {} template __global__ void k<3>();"), Names{"k"});
  EXPECT_EQ(names_in("__global__ void k(int n); \n__global__ void k(int n) {}"), Names{"k"});
  EXPECT_EQ(kernels_in("__global__ void k(int n);\n__global__ void k(int m) {}").at(0).line, 2);
  EXPECT_EQ(names_in("__device__ void f(); __global__ int x; void g() { k<<<1, 2>>>(3); }"), Names{});
}

TEST(ImportDeclaration, FindsOverloadsAndTheirLines) {
  const SourceTexts texts =
      texts_of("namespace a { __global__ void k(int);\n__global__ void k(float*); }\n__global__ void k() {}");
  const std::vector<KernelDeclaration> kernels = kernels_of(texts);
  EXPECT_EQ(kernels_named(kernels, "k").size(), 3u);
  EXPECT_EQ(kernels_named(kernels, "a::k").size(), 2u);
  EXPECT_EQ(kernels_named(kernels, "::k").size(), 1u);
  EXPECT_EQ(kernels_named(kernels, "::k")[0]->line, 3);
  EXPECT_EQ(draft_of(*kernels_named(kernels, "a::k")[1], texts, true, {}).instantiate,
            "static_cast<void (*)(float*)>(&a::k)");
  const SourceTexts templates =
      texts_of("template <typename T, int N> __global__ void k(const T* x, int n);");
  EXPECT_EQ(draft_of(kernels_of(templates)[0], templates, true, {}).instantiate,
            "static_cast<void (*)(const {T}*, int)>(&k<{T}, {N}>)");
}

TEST(ImportDeclaration, TakesTheValuesThatTheSourceInstantiates) {
  const ImportDraft draft = drafted(
      "enum Mode { off, on }; struct Traits { int n; };\n"
      "template <typename T, int N, bool B, Mode M, typename X> __global__ void k(T* y) {}\n"
      "template <typename Y> void all(Y* y) { k<Y, 4, true, on, Traits><<<1, 1>>>(y); }\n"
      "void one(__half* y) { k<__half, 8, false, off, Traits><<<1, 1>>>(y); }\n");
  const auto value = [&](std::size_t i) { return draft.parameters.at(i).value; };
  EXPECT_EQ(value(0), "f16") << "Y means nothing outside of its function";
  EXPECT_EQ(value(1), "8");
  EXPECT_EQ(value(3), "off");
  EXPECT_EQ(value(4), "Traits");
  EXPECT_EQ(draft.parameters[1].choices.size(), 2u) << "4 is shown, too";
  EXPECT_EQ(draft.parameters[0].evidence, "k.cuh:4");
  EXPECT_FALSE(draft.parameters[0].guessed);
}

/// The kernel takes a name at its place of use, and the name may mean something else there.
TEST(ImportDeclaration, AValueThatDependsOnItsPlaceIsAGuess) {
  const std::string global = "constexpr int N = 8; struct A { };\n";
  const std::string number = "template <int T> __global__ void k(int* o) {}\n";
  for (const std::string& text : {
           global + number + "namespace b { constexpr int N = 4; void f() { k<N><<<1, 1>>>(0); } }\n",
           global + number + "struct L { void f() { k<N><<<1, 1>>>(0); } static constexpr int N = 4; };\n",
           global + number + "struct L : Base { void f() { k<N><<<1, 1>>>(0); } };\n",
           global + number + "void L::f() { k<N><<<1, 1>>>(0); }\n",
           global + number + "void f() { dispatch([&](auto N) { k<N><<<1, 1>>>(0); }); }\n",
           "#define N 16\n" + number + "void f() { k<N><<<1, 1>>>(0); }\n#undef N\n#define N 32\n",
           number + "#if CUDA_VERSION > 12000\nvoid f() { k<4><<<1, 1>>>(0); }\n#endif\n",
           global + "template <typename T> __global__ void k(T* o) {}\n"
                    "namespace b { struct A { int a; }; void f() { k<A><<<1, 1>>>(0); } }\n",
       }) {
    const ImportParameter parameter = drafted(text).parameters.at(0);
    EXPECT_TRUE(parameter.guessed) << text;
    EXPECT_EQ(parameter.evidence, "") << text;
    EXPECT_NE(parameter.value, "") << text;
  }
}

TEST(ImportDeclaration, OnlyUsesOfTheKernelThatACompilerSeesAreEvidence) {
  const std::string number = "template <int T> __global__ void k(int* o) {}\n";
  for (const std::string& text : {
           "namespace d { template <int T> __device__ int k(int); }\n" + number +
               "__device__ int g() { return d::k<3>(1); }\nvoid f() { k<9><<<1, 1>>>(0); }\n",
           number + "#ifdef OTHER\nvoid f() { k<3><<<1, 1>>>(0); }\n#else\nvoid f() { k<9><<<1, 1>>>(0); "
                    "}\n#endif\n",
           number + "#if defined(OTHER) && 0\ntemplate __global__ void k<3>(int*);\n#endif\n"
                    "void f() { k<9><<<1, 1>>>(0); }\n",
       }) {
    const ImportParameter parameter = drafted(text).parameters.at(0);
    EXPECT_EQ(parameter.value, "9") << text;
    EXPECT_FALSE(parameter.guessed) << text;
  }
}

TEST(ImportDeclaration, KernelsAreFoundAfterBracketsThatCannotBePaired) {
  EXPECT_EQ(drafted("__global__ void k(int* o) {\n#ifdef A\nfor (;;) {\n#else\nint i;\n#endif\no[0] = 1;\n"
                    "#ifdef A\n}\n#endif\n}\n")
                .arguments.size(),
            1u);
}

TEST(ImportDeclaration, ConstantsOfTheSourceAreNumbersToo) {
  const std::string text =
      "#define WIDTH 32\nnamespace a { enum Optimizer { ADAM, LAMB }; constexpr int kLanes = 8;\n"
      "template <int OPTIMIZER, int N, int LANES, int SUM> __global__ void k(float* x) {} }\n";
  const ImportDraft draft =
      drafted(text, {{"OPTIMIZER", "LAMB"}, {"N", "WIDTH"}, {"LANES", "a::kLanes"}, {"SUM", "4 * kLanes"}});
  const auto only = [&](std::size_t i) { return draft.parameters.at(i).choices.at(0); };
  EXPECT_EQ(only(0), std::pair(std::string("a_LAMB"), std::string("a::LAMB")));
  EXPECT_EQ(only(1), std::pair(std::string("WIDTH"), std::string("WIDTH")));
  EXPECT_EQ(only(2).second, "a::kLanes");
  EXPECT_EQ(only(3).second, "4*a::kLanes");
  EXPECT_NE(refusal(text, {{"OPTIMIZER", "SGD"}}).find("OPTIMIZER='SGD'"), std::string::npos);
}

TEST(ImportDeclaration, AsksForWhatCannotBeKnown) {
  const ImportDraft draft = drafted(
      "template <typename Traits, typename F, typename T, int N> __global__ void k(T* y, F f) {\n"
      "  typename Traits::input_t v = f(y[0]); y[Traits::kThreads] = v; }");
  EXPECT_EQ(draft.parameters[0].ask, "must be a type with members input_t, kThreads");
  EXPECT_EQ(draft.parameters[1].ask, "must be a type that can be called, as the argument f is");
  EXPECT_TRUE(draft.parameters[3].guessed);
  EXPECT_NE(draft.parameters[3].ask.find("128 was tried"), std::string::npos);
}

TEST(ImportDeclaration, MapsParameters) {
  EXPECT_EQ(parameters_of("template <typename T, int N> __global__ void k(T* x) {}"), "dtype T, int N");
  EXPECT_EQ(
      parameters_of(
          "template <class T = float, unsigned int N = 0x10u, bool B = true> __global__ void k(T* x) {}"),
      "dtype T = \"f32\", int N = 16, bool B = true");
  EXPECT_EQ(parameters_of("template <int N, int M = N / 2, int L = -1> __global__ void k() {}"),
            "int N, int M = \"N / 2\", int L = -1");
  EXPECT_EQ(parameters_of("template <typename T, typename Out = T> __global__ void k(T* x, Out* y) {}"),
            "dtype T, dtype Out = \"T\"");
  EXPECT_EQ(parameters_of("template <typename T, uint32_t V = 16 / sizeof(T)> __global__ void k(T* x) {}"),
            "dtype T, int V = \"16 / sizeof(T)\"");
  EXPECT_EQ(parameters_of("enum class M { a, b }; template <M m = M::b> __global__ void k() {}"),
            "enum m = \"b\"");
  EXPECT_EQ(parameters_of("template <typename half, class T> __global__ void k(half* x, T* y) {}"),
            "dtype half, dtype T");
  EXPECT_EQ(parameters_of("template <ns::Mode m> __global__ void k() {}"), "enum m");
  EXPECT_EQ(parameters_of("template <typename Traits> __global__ void k() {}"), "dtype Traits");
  EXPECT_EQ(
      parameters_of("template <typename Params> __global__ void k(__grid_constant__ const Params p) {}"),
      "dtype Params");
  EXPECT_EQ(parameters_of("template <std::size_t N, long long L, auto A> __global__ void k() {}"),
            "int N, int L, int A");
  EXPECT_EQ(parameters_of("template <int sizeof_, int arch> __global__ void k() {}"),
            "int sizeof_, int arch_");
  EXPECT_EQ(parameters_of("template <typename T, std::array<int, 2> A> __global__ void k(T* x) {}"),
            "dtype T, enum A");
  EXPECT_EQ(parameters_of("template <int N = (1 > 0), int M = int{4}> __global__ void k() {}"),
            "int N = \"(1 > 0)\"");
}

TEST(ImportDeclaration, LeavesDefaultsItCannotSayToTheSource) {
  const ImportDraft draft = drafted(
      "template <typename T, typename A = typename Traits<T>::A, int N = A::n, typename = "
      "std::enable_if_t<(N > 2)>> "
      "__global__ void k(T* x) {}");
  EXPECT_EQ(draft.instantiate, "k<{T}>");
  EXPECT_EQ(draft.left_out.size(), 3u);
  EXPECT_EQ(drafted("template <int N = kDefault> __global__ void k() {}").instantiate, "k<>");
  EXPECT_EQ(drafted("template <long N = 1u - 2> __global__ void k() {}").instantiate, "k<>")
      << "it wraps around in C++";
  EXPECT_EQ(drafted("template <int N = kDefault> __global__ void k() {}", {{"N", "8"}}).instantiate,
            "k<{N}>");
}

TEST(ImportDeclaration, MapsArguments) {
  EXPECT_EQ(arguments_of(
                "__global__ void k(const float* __restrict__ x, float *y, double const* z, void* p, char* q)"
                " {}"),
            "ptr<f32> x, ptr<f32> y, ptr<f64> z, ptr<void> p, ptr<i8> q");
  EXPECT_EQ(
      arguments_of("__global__ void k(int a, unsigned b, int64_t c, std::size_t d, float e, double f) {}"),
      "i32 a, u32 b, i64 c, u64 d, f32 e, f64 f");
  EXPECT_EQ(
      arguments_of("__global__ void k(__half* a, nv_bfloat16* b, __nv_fp8_e4m3* c, float4* d, S* e) {}"),
      "ptr<f16> a, ptr<bf16> b, ptr<e4m3> c, ptr<f32> d, ptr<void> e");
  EXPECT_EQ(arguments_of("__global__ void k(const __grid_constant__ CUtensorMap a, cudaTextureObject_t t, "
                         "cudaSurfaceObject_t s) {}"),
            "tensormap a, texture t, surface s");
  EXPECT_EQ(arguments_of("__global__ void k(Params p, bool b, short s, dim3 d) {}"),
            "struct p, struct b, struct s, struct d");
  EXPECT_EQ(
      arguments_of("__global__ void k(float x[], int n[4], float** p, void (*f)(int, float), const S&) {}"),
      "ptr<f32> x, ptr<i32> n, ptr<void> p, ptr<void> f, ptr<void> arg4");
  EXPECT_EQ(arguments_of(
                "__global__ void k(GRID_CONSTANT Params const p, float* MY_RESTRICT x, int, const int) {}"),
            "struct p, ptr<f32> x, i32 arg2, i32 arg3");
  EXPECT_EQ(arguments_of("__global__ void k(std::pair<int, float*> p, int n = f(1, 2)) {}"),
            "struct p, i32 n");
  EXPECT_EQ(arguments_of("template <typename T> __global__ void k(T* x, T y, P<T> p) {}"),
            "ptr<T> x, struct y, struct p");
  EXPECT_EQ(arguments_of("template <int n> __global__ void k(int n, float* min, int min_) {}"),
            "i32 n_, ptr<f32> min_, i32 min__");
  EXPECT_EQ(arguments_of("__global__ void k(void) {}"), "");
}

TEST(ImportDeclaration, ReadsAccessAndDefaults) {
  const ImportDraft draft = drafted(
      "__global__ void k(const float* a, float* b, float* const c, const int d = 7, float e = 1e-5f, int f = "
      "-2);");
  EXPECT_FALSE(draft.arguments[0].writes);
  EXPECT_TRUE(draft.arguments[1].writes);
  EXPECT_TRUE(draft.arguments[2].writes);
  EXPECT_EQ(draft.arguments[3].value, "7");
  EXPECT_EQ(draft.arguments[4].value, "1e-5");
  EXPECT_EQ(draft.arguments[5].value, "-2");
}

TEST(ImportDeclaration, RefusesWhatAManifestCannotSay) {
  EXPECT_NE(refusal("template <typename... Ts> __global__ void k(Ts... ts) {}").find("is a pack"),
            std::string::npos);
  EXPECT_NE(refusal("template <int... Ns> __global__ void k() {}").find("is a pack"), std::string::npos);
  EXPECT_NE(refusal("template <template <typename> class C> __global__ void k() {}").find("is a template"),
            std::string::npos);
  EXPECT_NE(
      refusal("template <int N> __global__ void k() {}", {{"M", "3"}}).find("no template parameter 'M'"),
      std::string::npos);
  EXPECT_NE(refusal("template <int N> __global__ void k() {}", {{"N", "x"}}).find("an integer"),
            std::string::npos);
  EXPECT_NE(refusal("template <bool B> __global__ void k() {}", {{"B", "2"}}).find("true or false"),
            std::string::npos);
}

TEST(ImportDeclaration, TakesGivenValuesIntoTheLists) {
  const ImportDraft draft = drafted(
      "enum class M { a, b }; template <typename T, int N, M m, ns::X x, typename Traits> __global__ void "
      "k(T* y) {}",
      {{"T", "i8"}, {"N", "100000"}, {"m", "M::b"}, {"x", "ns::X::q"}, {"Traits", "ns::Traits<float, {}>"}});
  const auto has = [&](std::size_t i, const std::string& name) {
    for (const auto& [known, cpp] : draft.parameters[i].choices)
      if (known == name) return true;
    return false;
  };
  EXPECT_TRUE(has(0, "i8"));
  EXPECT_TRUE(has(1, "100000"));
  EXPECT_EQ(draft.parameters[2].value, "b");
  EXPECT_TRUE(has(3, "ns_X_q"));
  EXPECT_TRUE(has(4, "ns_Traits_float"));
}

TEST(ImportDeclaration, WritesThePreincludedShimsInTheirOrder) {
  ImportDraft draft = drafted("__global__ void k(float* x) {}");
  const auto preinclude = [&] {
    return source::parse_manifest(manifest_text(draft, "k.cuh", "k.cuh").toml, "k.toml").compile.preinclude;
  };
  EXPECT_EQ(preinclude(), Names{});
  draft.measures.shim = true;
  draft.measures.preinclude = {"nvcc.h", "unmark_host.h"};
  EXPECT_EQ(preinclude(), (Names{"nvcc.h", "unmark_host.h"}));
}

TEST(ImportDeclaration, WritesManifestsThatParse) {
  const ImportDraft draft = drafted(
      "enum class M { a, b };\ntemplate <typename T, int N = 4, bool B = false, M m = M::a>\n"
      "__global__ void __launch_bounds__(N * 32) k(const T* x, T* y, int n, float eps = 1.f, S s, M mode) {\n"
      "  extern __shared__ char c[]; cooperative_groups::this_grid(); }");
  const ImportText text = manifest_text(draft, "k.cuh", "k\".cuh\n");
  const source::Manifest manifest = source::parse_manifest(text.toml, "k.toml");
  EXPECT_EQ(manifest.parameters.size(), 4u);
  EXPECT_EQ(manifest.arguments.size(), 6u);
  EXPECT_EQ(manifest.arguments[1].access, source::Access::write);
  EXPECT_TRUE(manifest.kernel.launch.cooperative);
  EXPECT_FALSE(text.todo.empty());
  std::size_t marked = 0;
  for (std::size_t at = 0; (at = text.toml.find("# TODO: ", at)) != std::string::npos; ++at) ++marked;
  EXPECT_EQ(marked, text.todo.size());
}

TEST(ImportDeclaration, WritesTypesWithControlCharactersAsLines) {
  const char text[] = "template <int N> __global__ void k(S<\"a\0b\tc\"> x, int n) {}";
  const ImportDraft draft = drafted(std::string(text, sizeof text - 1));
  const source::Manifest manifest =
      source::parse_manifest(manifest_text(draft, "k.cuh", "k.cuh").toml, "k.toml");
  EXPECT_EQ(manifest.arguments.size(), 2u);
}

TEST(ImportDeclaration, LeavesEnumeratorsOutThatAManifestCannotName) {
  const ImportDraft draft =
      drafted("enum class M { one, gr\u00f6\u00dfer, two };\ntemplate <M m> __global__ void k(int n) {}");
  const source::Manifest manifest =
      source::parse_manifest(manifest_text(draft, "k.cuh", "k.cuh").toml, "k.toml");
  ASSERT_EQ(manifest.parameters[0].choices.size(), 2u);
  EXPECT_EQ(manifest.parameters[0].choices[1].cpp, "M::two");
}

/// Drafts every kernel in the text. Reading must not crash, and each drafted manifest must parse.
void read_all(const std::string& text) {
  const SourceTexts texts = texts_of(text);
  const std::vector<KernelDeclaration> kernels = kernels_of(texts);
  for (const KernelDeclaration& kernel : kernels) {
    std::string draft_text;
    try {
      ImportDraft draft = draft_of(kernel, texts, kernels.size() > 1, {});
      draft_arguments(draft, nullptr);
      draft.name = "k";
      draft_text = manifest_text(draft, "k.cuh", "k.cuh").toml;
    } catch (const Error&) {
      continue;  // a pack or something else that has no draft
    }
    try {
      source::parse_manifest(draft_text, "k.toml");
    } catch (const Error& error) {
      ADD_FAILURE() << error.what() << '\n' << draft_text;
    }
  }
}

/// In sorted order, so that every machine reads the same text.
std::vector<std::string> shipped_sources() {
  std::set<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::string(places::kSourceDirectory) + "/templates"))
    if (entry.path().extension() == ".cu") paths.insert(entry.path());
  std::vector<std::string> out;
  for (const auto& path : paths) out.push_back(base::read_file(path.string())->bytes);
  return out;
}

TEST(ImportDeclaration, AByteOrderMarkIsNoToken) {
  EXPECT_EQ(names_in("\xef\xbb\xbf__global__ void k(int n) {}"), Names{"k"});
  EXPECT_EQ(names_in("\xef\xbb\xbf#include <a.h>\n__global__ void k(int n) {}"), Names{"k"});
}

TEST(ImportDeclaration, SurvivesTextThatEndsAnywhere) {
  const std::vector<std::string> sources = shipped_sources();
  ASSERT_GT(names_in(base::join(sources, "")).size(), 5u);
  for (const std::string& text : sources) {
    for (std::size_t length = 0; length <= text.size();
         length += static_cast<std::size_t>(ci_or_night(101, 31)))
      read_all(text.substr(0, length));
    for (std::size_t from = 0; from < text.size(); from += static_cast<std::size_t>(ci_or_night(307, 97)))
      read_all(text.substr(from));
  }
}

TEST(ImportDeclaration, SurvivesTextWithCharactersChanged) {
  const std::string text = base::join(shipped_sources(), "");
  const std::string instead("<>(){}[];,\"'/*#\\\n=:\0.\x80", 22);
  std::uint64_t state = 1;
  const auto next = [&] { return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33; };
  for (int round = 0; round < 200; ++round) {
    std::string changed = text.substr(next() % text.size(), 6000);
    for (int i = 0; i < 20; ++i) changed[next() % changed.size()] = instead[next() % instead.size()];
    read_all(changed);
  }
}

TEST(ImportDeclaration, SurvivesOpeningsThatNothingCloses) {
  for (const char* piece :
       {"template <", "(", "{", "namespace a {", "#if 1\n", "\"", "R\"(", "/*", "[[", "enum a {",
        "__global__ void k(", "template <int N> __global__ void __launch_bounds__("}) {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += piece;
    read_all(text);
    read_all(text + ") {}");
  }
}

}  // namespace
}  // namespace kiln::cli
