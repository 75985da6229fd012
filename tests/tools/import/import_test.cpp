// kiln import as a process: the files that it writes, what it proves, and what it refuses.
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <thread>

#include "base/deadline.hpp"
#include "support/places.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSource = R"cu(#pragma once
namespace outer {
enum class Mode { none, silu, gelu };
struct Params { float scale[5]; int n; };
template <typename T, int N, bool FLAG = false, Mode MODE = Mode::silu>
__global__ void __launch_bounds__(N) scale_rows(const T* __restrict__ x, T* y, const __grid_constant__ Params params,
                                                int n, float eps = 1e-5f) {
  if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] * params.scale[0] + eps + (MODE == Mode::gelu ? N : 0);
}
__global__ void plain(float* x) { x[0] = 1; }
__global__ void plain(double* x, int n) { x[n] = 2; }
template <typename... Ts> __global__ void packed(Ts... values) {}
}  // namespace outer
)cu";

class ImportFiles : public KilnCommand {
 protected:
  ImportFiles() { write("k.cuh", kSource); }
  bool exists(const std::string& name) const { return fs::exists(path(name)); }
  std::string text(const std::string& name) const {
    const auto content = base::read_file(path(name));
    return content ? content->bytes : std::string();
  }
  bool says(const std::string& name, const std::string& what) const {
    return text(name).find("\n" + what) != std::string::npos;
  }
};

class Import : public ImportFiles {
 protected:
  void SetUp() override {
    if (kiln({"compile", "scale", "N=1"}).status != 0) GTEST_SKIP() << "no compiler here";
  }
  /// The measures that the only kernel of this source needs.
  nlohmann::json measures(const std::string& source) {
    write("m.cuh", source);
    const auto json = kiln({"import", "m.cuh", "k", "--force", "--json"}).json();
    EXPECT_TRUE(json["proved"]) << json.dump(2);
    return json["measures"];
  }
};

TEST_F(Import, WritesAManifestThatCompiles) {
  const Finished r = kiln({"import", "k.cuh", "scale_rows", "N=64", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const auto json = r.json();
  EXPECT_EQ(json["proved"], true);
  EXPECT_EQ(json["template"], "scale_rows");
  EXPECT_EQ(json["manifest"], fs::canonical(path("scale_rows.toml")).string());
  EXPECT_EQ(json["line"], 6);
  EXPECT_EQ(json["measures"], nlohmann::json::array());
  EXPECT_EQ(json["instantiate"], "outer::scale_rows<{T}, {N}, {FLAG}, {MODE}>");
  EXPECT_GT(json["todo"].size(), 3u);
  const auto again =
      kiln({"compile", "scale_rows", "T=f32", "N=64", "--template-path", path(""), "--json"}).json();
  EXPECT_EQ(again["outcome"], "disk");
  EXPECT_EQ(again["key"], json["key"]);
  EXPECT_EQ(again["cubin_bytes"], json["cubin_bytes"]);
}

TEST_F(Import, TakesTheSizeOfAStructFromTheImage) {
  const auto json = kiln({"import", "k.cuh", "scale_rows", "--json"}).json();
  EXPECT_EQ(json["arguments"][2]["type"], "struct<24>");
  EXPECT_EQ(json["arguments"][2]["bytes"], 24);
  EXPECT_EQ(json["arguments"][3]["type"], "i32");
  EXPECT_TRUE(says("scale_rows.toml", "type = \"struct<24>\""));
}

TEST_F(Import, MarksWhatIsLeftToFillIn) {
  kiln({"import", "k.cuh", "scale_rows"});
  EXPECT_TRUE(says("scale_rows.toml", "grid = [\"1\"]  # TODO: "));
  EXPECT_TRUE(says("scale_rows.toml", "block = [\"N\"]  # TODO: "));
  EXPECT_TRUE(says("scale_rows.toml", "access = \"write\"  # TODO: "));
  EXPECT_TRUE(says("scale_rows.toml", "value = 1e-5\n"));
  EXPECT_TRUE(says("scale_rows.toml", "default = \"silu\"\n"));
  EXPECT_TRUE(says("scale_rows.toml", "# [reference]"));
  EXPECT_TRUE(says("scale_rows.toml", "# [[prewarm]]"));
}

TEST_F(Import, WritesDownTheSmallestSetOfMeasuresThatWorks) {
  using List = std::vector<std::string>;
  EXPECT_EQ(measures("__global__ void k(float* x) { x[0] = 1; }"), List{});
  EXPECT_EQ(measures("inline float f() { return 1; }\n__global__ void k(float* x) { x[0] = f(); }"),
            List{"default_device = true"});
  EXPECT_TRUE(says("k.toml", "default_device = true\n"));
  EXPECT_EQ(measures("__global__ void k(float* x) { x[0] = (float)(__int128)x[1]; }"),
            List{"options = [\"--device-int128\"]"});
  EXPECT_EQ(
      measures(
          "template <class T> concept holds = true;\n__global__ void k(float* x) { x[0] = holds<int>; }"),
      List{"std = \"c++20\""});
  EXPECT_EQ(measures("#include <stdint.h>\n#include <type_traits>\n__global__ void k(uint16_t* x) { x[0] = "
                     "std::is_same<int, int>::value; }"),
            List{"host_headers = \"shim\""});
  EXPECT_TRUE(says("k.toml", "host_headers = \"shim\"\n"));
  EXPECT_EQ(measures("inline __int128 f() { return 1; }\n__global__ void k(float* x) { x[0] = (float)f(); }"),
            (List{"default_device = true", "options = [\"--device-int128\"]"}));
}

constexpr const char* kHostHalf =
    "#include <stdint.h>\n#include \"checks.h\"\n__global__ void k(uint32_t* x) { x[0] = 1; }\n"
    "__host__ inline cudaError_t launch(uint32_t* x) {\n  CHECK(x);\n  k<<<1, 32>>>(x);\n  return "
    "cudaGetLastError();\n}\n";

const std::vector<std::string> kCut{"host_headers = \"shim\"", "host_code = \"cut\""};

TEST_F(Import, ALauncherBesideTheKernelIsCutAway) {
  write("checks.h", "#define CHECK(x) if (!x) throw \"in host code this is no error\"\n");
  EXPECT_EQ(measures(kHostHalf), kCut);
  EXPECT_TRUE(says("k.toml", "host_code = \"cut\"\n"));
  EXPECT_EQ(text("m.cuh"), kHostHalf) << "the file stays as it is";
}

TEST_F(Import, DeviceCodeThatDoesNotCompileIsCutOnlyWhenNothingElseHelps) {
  const std::string wide = "__device__ int f(Missing m) { return m.a; }\n";
  write("checks.h", "#define CHECK(x) if (!x) throw 1\n");
  write("m.cuh", wide + kHostHalf);
  const Finished r = kiln({"import", "m.cuh", "k"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(says("k.toml", "host_code = \"cut-unused\"\n"));
  EXPECT_NE(r.err.find("kiln: warning: host_code = \"cut-unused\""), std::string::npos) << r.err;
}

TEST_F(Import, WordsOfCpp20BringTheStandard) {
  write(
      "m.cuh",
      "template <typename T> concept Any = true;\ntemplate <Any T> __global__ void k(T* o) { o[0] = 3; }\n");
  EXPECT_EQ(kiln({"import", "m.cuh", "k", "T=int"}).status, 0);
  EXPECT_TRUE(says("k.toml", "std = \"c++20\"\n"));
}

TEST_F(Import, AHeaderThatIsNotThereCountsAsEmpty) {
  const auto found = measures(kHostHalf);
  EXPECT_TRUE(says("k.toml", "empty = [\"checks.h\"]\n"));
  EXPECT_EQ(found.size(), kCut.size() + 1);
}

TEST_F(Import, StubsOfTheFirstImportAreKept) {
  ::mkdir(path("stubs").c_str(), 0700);
  write("stubs/checks.h", "#define HALF 0.5f\n");
  write("own.h", "#define TWICE 2\n");
  write("m.cuh",
        "#include \"checks.h\"\n#include <lib/twice.h>\n__global__ void k(float* x) { x[0] = HALF * TWICE; "
        "}\n");
  EXPECT_EQ(kiln({"import", "m.cuh", "k"}).status, 3);
  const Finished r =
      kiln({"import", "m.cuh", "k", "--stubs", "stubs", "--replace", "lib/twice.h=own.h", "--force"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(kiln({"import", "m.cuh", "k", "--force"}).status, 0);
  EXPECT_TRUE(says("k.toml", "include_dirs = [\"stubs\"]\n"));
  EXPECT_TRUE(says("k.toml", "replace = { \"lib/twice.h\" = \"own.h\" }\n"));
}

TEST_F(Import, NamesThatTheKernelNeedsAreKept) {
  // half() is host code for nvcc, and `twice` is found only after a macro has pasted its name.
  write("m.cuh",
        "#define PASTE(a, b) a##b\ninline float half(float x) { return x / 2; }\n"
        "__device__ float twice_f32(float x) { return 2 * x; }\nvoid launch(float* x);\n"
        "__global__ void k(float* x) { x[0] = half(PASTE(twice, _f32)(x[0])); }\n"
        "void launch(float* x) { k<<<1, 1>>>(x); }\n");
  const Finished r = kiln({"import", "m.cuh", "k", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_GT(r.json()["rounds"], 2);
}

TEST_F(Import, ValuesThatTheSourceInstantiatesAreTaken) {
  write("m.cuh",
        "namespace n { struct Silu { __device__ float operator()(float x) const { return x; } };\n"
        "template <typename T, typename F, int N> __global__ void k(T* x, F f) { x[N] = f(x[0]); }\n"
        "inline void launch(float* x) { k<float, Silu, 4><<<1, 1>>>(x, Silu()); } }\n");
  const Finished r = kiln({"import", "m.cuh", "k", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const auto parameters = r.json()["parameters"];
  EXPECT_EQ(parameters[1]["value"], "n_Silu") << "with its namespace";
  EXPECT_EQ(parameters[2]["value"], "4");
  EXPECT_EQ(parameters[0]["evidence"], "m.cuh:3");
  EXPECT_EQ(parameters[0]["guessed"], false);
}

TEST_F(Import, AsksByNameForWhatItCannotKnow) {
  write("m.cuh",
        "template <typename Traits> __global__ void k(typename Traits::T* x) { x[Traits::n] = 1; }\n");
  const Finished r = kiln({"import", "m.cuh", "k", "--json"});
  EXPECT_EQ(r.status, 3);
  EXPECT_EQ(r.json()["asks"][0], "Traits must be a type with members T, n: give it as Traits=V");
  EXPECT_NE(r.err.find("give it as Traits=V"), std::string::npos) << r.err;
}

TEST_F(Import, AKernelThatAMacroDeclaresIsImported) {
  write("m.cuh",
        "#include <vector>\n#define KERNEL(name, ...) template <typename T, __VA_ARGS__> __global__ void "
        "name(T* x)\n"
        "#define MAKE(T) template __global__ void other<T, true>(T*);\n"
        "KERNEL(other, bool B) { x[0] = std::vector<T>(B).size(); }\nMAKE(float)\n"
        "KERNEL(k, bool B, int N) { x[N] = B; }\n");
  const Finished r = kiln({"import", "m.cuh", "k", "T=float", "N=4", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.json()["instantiate"], "k<{T}, {B}, {N}>");
  EXPECT_EQ(r.json()["line"], 6);
}

TEST_F(Import, AnEnumeratorOrAMacroIsANumber) {
  write("m.cuh",
        "#define WIDTH 32\nenum Optimizer { ADAM, LAMB };\n"
        "template <int OPTIMIZER, int N> __global__ void k(float* x) { x[N] = OPTIMIZER; }\n");
  const Finished r = kiln({"import", "m.cuh", "k", "OPTIMIZER=LAMB", "N=WIDTH", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.json()["parameters"][0]["value"], "LAMB");
  EXPECT_TRUE(says("k.toml", "values = { LAMB = \"LAMB\" }"));
}

TEST_F(Import, AnExpressionOfEnumeratorsIsTakenAsText) {
  const std::string source =
      "namespace n { enum class E { A = 1, B = 2, C = 4 };\n"
      "constexpr E operator|(E a, E b) { return E(int(a) | int(b)); }\n"
      "template <E F, E G = E::A | E::C, int N = 1> __global__ void k(int* o) { o[N] = int(F) + int(G); }\n";
  const std::string calls[] = {"void f(int* p) { k<E::A | E::B><<<1, 1>>>(p); } }\n",
                               "void f(int* p) { k<E::B><<<1, 1>>>(p); } }\n"};
  write("or.cuh", source + calls[0]);
  const auto sum = kiln({"import", "or.cuh", "k", "N=2", "--json"}).json();
  EXPECT_TRUE(sum["proved"]) << sum.dump(2);
  EXPECT_EQ(sum["parameters"][0]["value"], "n_E_A_n_E_B");
  EXPECT_TRUE(says("k.toml", "default = \"n_E_A_n_E_C\"\n")) << text("k.toml");
  write("one.cuh", source + calls[1]);
  EXPECT_EQ(kiln({"import", "one.cuh", "k", "--json", "--force"}).json()["parameters"][0]["value"], "B");
  for (const auto& [given, value] : std::map<std::string, std::string>{
           {"F=C", "C"}, {"F=E::C", "C"}, {"F=n::E::C", "C"}, {"F=n::E::A | n::E::C", "n_E_A_n_E_C"}}) {
    const auto json = kiln({"import", "one.cuh", "k", given, "--json", "--force"}).json();
    EXPECT_TRUE(json["proved"]) << json.dump(2);
    EXPECT_EQ(json["parameters"][0]["value"], value);
  }
}

TEST_F(Import, ATypeOfTheSizeOfLongLongStaysAType) {
  const std::string source = "template <typename T> __global__ void k(T* o) { o[0] = 1; }\n";
  for (const auto& [type, value] : std::map<std::string, std::string>{{"long", "long"},
                                                                      {"unsigned long", "unsigned_long"},
                                                                      {"size_t", "size_t"},
                                                                      {"ptrdiff_t", "ptrdiff_t"},
                                                                      {"long long", "i64"},
                                                                      {"unsigned long long", "u64"},
                                                                      {"uint64_t", "u64"}}) {
    write("t.cuh", "#include <cstdint>\n#include <cstddef>\n" + source + "void f(" + type + "* p) { k<" +
                       type + "><<<1, 1>>>(p); }\n");
    const auto json = kiln({"import", "t.cuh", "k", "--json", "--force"}).json();
    EXPECT_TRUE(json["proved"]) << json.dump(2);
    EXPECT_EQ(json["parameters"][0]["value"], value);
    EXPECT_EQ(json["parameters"][0]["kind"], value.size() == 3 ? "dtype" : "type");
    EXPECT_EQ(json["parameters"][0]["evidence"], "t.cuh:4");
  }
}

TEST_F(Import, ScalesOfUe8m0AreADtype) {
  write("t.cuh",
        "#include <cuda_fp8.h>\ntemplate <typename T> __global__ void k(float* o, const T* s, const "
        "__nv_fp8_e8m0* e) {"
        " o[0] = static_cast<float>(s[0]) + static_cast<float>(e[0]); }\n");
  const auto json = kiln({"import", "t.cuh", "k", "T=__nv_fp8_e8m0", "--json"}).json();
  EXPECT_TRUE(json["proved"]) << json.dump(2);
  EXPECT_EQ(json["parameters"][0]["kind"], "dtype");
  EXPECT_EQ(json["parameters"][0]["value"], "ue8m0");
  EXPECT_EQ(json["arguments"][1]["type"], "ptr<T>");
  EXPECT_EQ(json["arguments"][2]["type"], "ptr<ue8m0>");
}

TEST_F(Import, ABooleanExpressionIsTakenAsText) {
  const std::string source = "template <bool B> __global__ void k(int* o) { o[0] = B; }\n";
  write("b.cuh", source + "void f(int* p) { k<sizeof(int) == 4><<<1, 1>>>(p); }\n");
  const auto json = kiln({"import", "b.cuh", "k", "--json"}).json();
  EXPECT_TRUE(json["proved"]) << json.dump(2);
  EXPECT_EQ(json["parameters"][0]["kind"], "enum");
  EXPECT_TRUE(text("k.toml").find("\"sizeof(int)==4\"") != std::string::npos) << text("k.toml");
  write("b.cuh", source + "void f(int* p) { k<2 == 2><<<1, 1>>>(p); }\n");
  EXPECT_EQ(kiln({"import", "b.cuh", "k", "--json", "--force"}).json()["parameters"][0]["value"], "true");
}

TEST_F(Import, ALocalConstantIsNoEvidence) {
  write("m.cuh",
        "constexpr int N = 4, M = 3;\ntemplate <int A, int B> __global__ void k(int* o) { o[A] = B; }\n"
        "void f(int* p) { constexpr int N = 8; int size = N * M; k<N, M><<<1, 1>>>(p); }\n");
  const auto parameters = kiln({"import", "m.cuh", "k", "--json"}).json()["parameters"];
  EXPECT_EQ(parameters[0]["guessed"], true) << parameters.dump(2);
  EXPECT_EQ(parameters[1]["value"], "M");
}

TEST_F(Import, AnOctalNumberIsReadAsTheCompilerDoes) {
  write(
      "o.cuh",
      "template <int N> __global__ void k(int* o) { o[0] = N; }\nvoid f(int* p) { k<010><<<1, 1>>>(p); }\n");
  for (const std::string given : {"", "N=010", "N=0x8", "N=8"}) {
    Arguments arguments{"import", "o.cuh", "k", "--json", "--force"};
    if (!given.empty()) arguments.push_back(given);
    EXPECT_EQ(kiln(arguments).json()["parameters"][0]["value"], "8") << given;
    EXPECT_TRUE(says("k.toml", "values = [8]")) << text("k.toml");
  }
}

TEST_F(Import, DirectoriesThatAreGivenNowComeFirst) {
  for (const char* directory : {"old", "gone", "new"}) {
    ::mkdir(path(directory).c_str(), 0700);
    write(std::string(directory) + "/h.h", "#define H " + std::to_string(directory[0]) + "\n");
  }
  write("m.cuh", "#include <h.h>\n__global__ void k(int* o) { o[0] = H; }\n");
  ASSERT_EQ(kiln({"import", "m.cuh", "k", "-I", "gone", "-I", "old"}).status, 0);
  fs::remove_all(path("gone"));
  const Finished r = kiln({"import", "m.cuh", "k", "-I", "new", "--force"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(says("k.toml", "include_dirs = [\"new\", \"old\"]\n")) << text("k.toml");
  EXPECT_NE(r.err.find("'gone' of the manifest that is there is no directory any more"), std::string::npos)
      << r.err;
}

TEST_F(Import, HintsAboutHeadersAreFollowed) {
  EXPECT_EQ(
      measures("#include <cstdint>\n__global__ void k(float* x) { x[0] = std::get<0>(std::make_tuple(1)) + "
               "INFINITY; }"),
      (std::vector<std::string>{"host_headers = \"shim\"", "preinclude = [\"tuple\", \"cmath\"]"}));
}

TEST_F(Import, AllErrorsAreShownOnDemand) {
  write("bad.cuh", "__global__ void k(float* x) { x[0] = A + B + C + D + E; }\n");
  const std::string few = kiln({"import", "bad.cuh", "k"}).err;
  EXPECT_NE(few.find("and 2 more errors (--verbose shows all)"), std::string::npos) << few;
  EXPECT_EQ(few.find("\"E\" is undefined"), std::string::npos) << few;
  const std::string all = kiln({"import", "bad.cuh", "k", "--force", "--verbose"}).err;
  EXPECT_NE(all.find("\"E\" is undefined"), std::string::npos) << all;
}

constexpr const char* kEndless =
    "template <int N, int M> struct F { static constexpr int v = F<N - 1, 2 * M>::v + F<N - 1, 2 * M + "
    "1>::v; };\n"
    "template <int M> struct F<0, M> { static constexpr int v = M; };\n"
    "__global__ void k(int* x) { *x = F<30, 1>::v; }\n";

TEST_F(Import, ARoundThatWasKilledIsTheFurthest) {
  write("endless.cuh", std::string("#include \"nowhere.h\"\n") + kEndless);
  const Finished r = kiln({"import", "endless.cuh", "k", "--json"}, {{"KILN_COMPILE_DEADLINE", "3"}});
  EXPECT_EQ(r.status, 3);
  EXPECT_EQ(r.json()["error"]["code"], "compile_timeout");
  EXPECT_NE(r.err.find("killed at its deadline of 3 s (KILN_COMPILE_DEADLINE)"), std::string::npos) << r.err;
  EXPECT_EQ(r.json()["empty"], std::vector<std::string>{"nowhere.h"});
}

TEST_F(Import, TriesEveryKernelOfADirectory) {
  ::mkdir(path("all").c_str(), 0700);
  write(
      "all/good.cu",
      "#include <vector>\n__global__ void k(float* x) { x[0] = 1; }\nint main() { std::vector<float> v; }\n");
  write("all/bad.cuh", "__global__ void broken(float* x) { x[0] = MISSING; }\n");
  const Finished r = kiln({"import", "--check", "all", "--json"});
  EXPECT_EQ(r.status, 3) << r.err;
  const auto json = r.json();
  ASSERT_EQ(json["kernels"].size(), 2u);
  EXPECT_EQ(json["compiled"], 1);
  EXPECT_EQ(json["kernels"][0]["file"], "bad.cuh");
  EXPECT_NE(json["kernels"][0]["missing"].get<std::string>().find("MISSING"), std::string::npos);
  EXPECT_GT(json["kernels"][1]["cubin_bytes"], 0);
  EXPECT_FALSE(exists("all/k.toml"));
  const Finished table = kiln({"import", "--check", "all"});
  EXPECT_NE(table.out.find("1 of 2 kernels compile"), std::string::npos) << table.out;
  EXPECT_EQ(kiln({"import", "--check", "nowhere"}).status, 1);
  ::mkdir(path("none").c_str(), 0700);
  const Finished none = kiln({"import", "--check", "none"});
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("no .cu or .cuh file below it defines a kernel"), std::string::npos) << none.err;
}

TEST_F(Import, AFileThatCannotBeReadIsARowOfTheCheck) {
  ::mkdir(path("all").c_str(), 0700);
  write("all/good.cu", "__global__ void k(float* x) { x[0] = 1; }\n");
  write("all/a\nb.cu", "__global__ void k(float* x) { x[0] = 1; }\n");
  write("all/large.cu", std::string((std::size_t{16} << 20) + 1, ' '));
  const Finished r = kiln({"import", "--check", "all", "--json"});
  EXPECT_EQ(r.status, 3) << r.err;
  const auto json = r.json();
  ASSERT_EQ(json["kernels"].size(), 3u) << json.dump(2);
  EXPECT_EQ(json["compiled"], 1);
  EXPECT_EQ(json["kernels"][0]["kernel"], "");
  EXPECT_NE(json["kernels"][0]["missing"].get<std::string>().find("rename it"), std::string::npos);
  EXPECT_EQ(json["kernels"][2]["file"], "large.cu");
}

TEST_F(Import, AKernelThatDoesNotCompileIsWrittenAllTheSame) {
  write("bad.cuh",
        "template <int N> __global__ void k(float* x) { static_assert(N % 3 == 0, \"by three\"); }\n");
  const Finished r = kiln({"import", "bad.cuh", "k", "--json"});
  EXPECT_EQ(r.status, 3);
  const auto json = r.json();
  EXPECT_EQ(json["proved"], false);
  EXPECT_EQ(json["measures"], nlohmann::json::array()) << "none of them helps";
  EXPECT_EQ(json["parameters"][0]["guessed"], true);
  EXPECT_TRUE(json["key"].is_null());
  EXPECT_EQ(json["error"]["code"], "compile_failed");
  EXPECT_NE(r.err.find("by three"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("give it as N=V"), std::string::npos) << r.err;
  EXPECT_TRUE(exists("k.toml"));
  EXPECT_EQ(kiln({"import", "bad.cuh", "k", "N=3", "--force"}).status, 0);
}

TEST_F(Import, AMissingHeaderIsNamedWithWhatToDo) {
  write("bad.cuh", "#include \"nowhere.h\"\n__global__ void k(float* x) { x[0] = NOWHERE; }\n");
  const Finished r = kiln({"import", "bad.cuh", "k"});
  EXPECT_EQ(r.status, 3);
  EXPECT_NE(r.err.find("nowhere.h"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("-I DIR"), std::string::npos) << r.err;
}

class ImportExample : public Import {
 protected:
  ImportExample() {
    fs::copy(std::string(places::kSourceDirectory) + "/tests/fixtures/foreign/example/include",
             path("include"), fs::copy_options::recursive);
  }
  Finished run() {
    return kiln({"import", "include/scale/scale_rows.cuh", "scale_rows", "T=f16", "Act=scale::Identity",
                 "Threads=256", "-I", "include", "-o", "scale_rows.toml", "--force", "--json"});
  }
};

TEST_F(ImportExample, CompilesByItself) {
  const Finished r = run();
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(says("scale_rows.toml", "empty = [\"checks.h\"]\n"));
  EXPECT_EQ(r.json()["arguments"][0]["type"], "struct");
  EXPECT_EQ(r.json()["arguments"][0]["bytes"], 32);
}

TEST_F(Import, ReportsTheAttemptThatGotFarthest) {
  write("bad.cuh",
        "#include <cstdint>\ninline uint32_t f() { return 1; }\n"
        "__global__ void k(float* x) { x[0] = f() + MISSING; }  // of errors\n");
  const Finished r = kiln({"import", "bad.cuh", "k", "--json"});
  EXPECT_EQ(r.status, 3);
  EXPECT_NE(r.err.find("identifier \"MISSING\" is undefined"), std::string::npos) << r.err;
  EXPECT_EQ(r.err.find("cstdint"), std::string::npos) << r.err;
  EXPECT_EQ(r.err.find("execution space"), std::string::npos) << r.err;
  EXPECT_EQ(r.json()["measures"],
            (std::vector<std::string>{"host_headers = \"shim\"", "default_device = true"}));
}

TEST_F(Import, AFailureKeepsTheManifestThatIsThere) {
  write("k.toml", "mine");
  write("bad.cuh", "__global__ void k(float* x) { x[0] = HEAD; }\n");
  const Finished r = kiln({"import", "bad.cuh", "k", "--force", "--json"});
  EXPECT_EQ(r.status, 3);
  EXPECT_EQ(text("k.toml"), "mine");
  EXPECT_TRUE(says("k.toml.new", "name = \"k\"\n"));
  EXPECT_EQ(r.json()["manifest"], fs::canonical(path("k.toml.new")).string());
  EXPECT_NE(r.err.find("k.toml' is left as it was; the new one is "), std::string::npos) << r.err;
  EXPECT_EQ(kiln({"import", "bad.cuh", "k", "-D", "HEAD=64", "--force"}).status, 0);
  EXPECT_TRUE(says("k.toml", "name = \"k\"\n"));
  EXPECT_FALSE(exists("k.toml.new")) << "it is older than the manifest";
}

/// Returns true when the process has started another one.
bool has_child(int pid) {
  std::error_code error;
  for (const auto& thread : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task", error))
    if (!base::read_proc(thread.path().string() + "/children").empty()) return true;
  return false;
}

TEST_F(Import, AnInterruptLeavesNoManifest) {
  write("endless.cuh", kEndless);
  ::mkdir(path("mine").c_str(), 0700);
  const auto process = start({"import", "endless.cuh", "k", "-o", "mine/k.toml"});
  ASSERT_TRUE(base::poll_until(base::Deadline::after(std::chrono::seconds(60)),
                               [&] { return has_child(process->pid()); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // now it is in the compile, which never ends
  ASSERT_TRUE(has_child(process->pid()));
  process->send(SIGINT);
  EXPECT_EQ(process->wait().status, 130);
  EXPECT_TRUE(fs::is_empty(path("mine")));
}

TEST_F(Import, AKernelBehindAMacroIsFound) {
  write("m.cuh", "LIB_GLOBAL void k(float* x) { x[0] = 1; }\n");
  const Finished none = kiln({"import", "m.cuh", "k"});
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.err.find("-D NAME=__global__"), std::string::npos) << none.err;
  EXPECT_EQ(kiln({"import", "m.cuh", "k", "-D", "LIB_GLOBAL=__global__"}).status, 0);
  EXPECT_TRUE(says("k.toml", "define = { LIB_GLOBAL = \"__global__\" }"));
  write("lib.h", "#define LIB_GLOBAL __global__\n");
  write("m.cuh", "#include \"lib.h\"\nLIB_GLOBAL void k(float* x) { x[0] = 1; }\n");
  EXPECT_EQ(kiln({"import", "m.cuh", "k", "--force"}).status, 0);
}

TEST_F(Import, AnotherDirectoryGetsASourceThatIncludesIt) {
  ::mkdir(path("mine").c_str(), 0700);
  ::mkdir(path("include").c_str(), 0700);
  write("include/more.h", "namespace outer { enum class Kind { one, two }; }\n");
  write("k.cuh",
        "#include <more.h>\nnamespace outer { template <Kind K> __global__ void k(float* x) { x[0] = (int)K; "
        "} }\n");
  const Finished r = kiln({"import", "k.cuh", "outer::k", "-I", "include", "-o", "mine/own.toml", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.json()["template"], "own");
  EXPECT_EQ(r.json()["parameters"][0]["values"], (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(text("mine/own.cu"), "#include <k.cuh>\n");
  EXPECT_TRUE(says("mine/own.toml", "include_dirs = [\"..\", \"../include\"]"));
  const auto json = kiln({"compile", "own", "K=two", "--template-path", path("mine"), "--json"}).json();
  EXPECT_EQ(json["outcome"], "compiled");
}

TEST_F(Import, MacrosAreGivenWithDefine) {
  write("k.cuh", "__global__ void k(float* x) { x[0] = HEAD; }\n");
  EXPECT_EQ(kiln({"import", "k.cuh", "k"}).status, 3);
  EXPECT_EQ(kiln({"import", "k.cuh", "k", "-D", "HEAD=64", "--force"}).status, 0);
  EXPECT_TRUE(says("k.toml", "define = { HEAD = \"64\" }"));
}

TEST_F(Import, AnOverloadIsChosenByItsLine) {
  const auto json = kiln({"import", "k.cuh", "plain", "--line", "11", "--json"}).json();
  EXPECT_EQ(json["instantiate"], "static_cast<void (*)(double*, int)>(&outer::plain)");
  EXPECT_EQ(json["proved"], true);
  EXPECT_EQ(json["arguments"].size(), 2u);
}

TEST_F(Import, PrintWritesNoFile) {
  const Finished r = kiln({"import", "k.cuh", "scale_rows", "--print"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("\nsource = \"k.cuh\"\n"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("struct<24>"), std::string::npos) << r.out;
  EXPECT_FALSE(exists("scale_rows.toml"));
  EXPECT_FALSE(exists("scale_rows.cu"));
  const auto json = kiln({"import", "k.cuh", "scale_rows", "--print", "--json"}).json();
  EXPECT_EQ(json["text"], r.out);
  EXPECT_TRUE(json["manifest"].is_null());
}

TEST_F(Import, ArgumentsThatAMacroHidesAreThoseOfTheImage) {
  write("m.cuh", "#define ARGUMENTS float *x, int n, double d\n__global__ void k(ARGUMENTS) { x[n] = d; }\n");
  const auto json = kiln({"import", "m.cuh", "k", "--json"}).json();
  EXPECT_EQ(json["proved"], true);
  ASSERT_EQ(json["arguments"].size(), 3u);
  EXPECT_EQ(json["arguments"][0]["bytes"], 8);
  EXPECT_EQ(json["arguments"][1]["bytes"], 4);
  EXPECT_EQ(json["arguments"][2]["bytes"], 8);
}

TEST_F(Import, TypesAndWhatDependsOnThemAreGivenAsText) {
  write("m.cuh",
        "namespace a { struct P { float x[7]; }; template <typename Params, typename T>\n"
        "__global__ void k(const __grid_constant__ Params p, T scale, cudaTextureObject_t t, T* y) { y[0] = "
        "p.x[0] * scale; } }\n");
  const Finished r = kiln({"import", "m.cuh", "k", "Params=a::P", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const auto json = r.json();
  EXPECT_EQ(json["parameters"][0]["kind"], "type");
  EXPECT_EQ(json["parameters"][0]["value"], "a_P");
  EXPECT_EQ(json["parameters"][1]["kind"], "dtype");
  EXPECT_EQ(json["arguments"][0]["type"], "struct");
  EXPECT_EQ(json["arguments"][1]["type"], "struct");
  EXPECT_EQ(json["arguments"][2]["type"], "texture");
  EXPECT_TRUE(says("k.toml", "values = { a_P = \"a::P\" }  # TODO: "));
}

struct Refusal {
  const char* name;
  Arguments arguments;
  int status;
  const char* says;
};
[[maybe_unused]] void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }
class ImportRefuses : public ImportFiles, public ::testing::WithParamInterface<Refusal> {};

TEST_P(ImportRefuses, AndWritesNothing) {
  write("taken.toml", "mine");
  Arguments arguments = GetParam().arguments;
  arguments.insert(arguments.begin(), "import");
  const Finished r = kiln(arguments);
  EXPECT_EQ(r.status, GetParam().status) << r.err;
  EXPECT_NE(r.err.find(GetParam().says), std::string::npos) << r.err;
  EXPECT_EQ(text("taken.toml"), "mine");
  std::size_t manifests = 0;
  for (const auto& entry : fs::directory_iterator(path(""))) manifests += entry.path().extension() == ".toml";
  EXPECT_EQ(manifests, 1u);
  arguments.push_back("--json");
  EXPECT_TRUE(kiln(arguments).json()["error"]["message"].is_string());
}

const Refusal kRefusals[] = {
    {"NoSuchKernel", {"k.cuh", "scale_row"}, 1, "did you mean 'scale_rows'"},
    {"NoSuchNamespace",
     {"k.cuh", "inner::plain"},
     1,
     "there are: outer::scale_rows outer::plain outer::packed"},
    {"NoSuchFile", {"nowhere.cuh", "k"}, 1, "cannot read 'nowhere.cuh'"},
    {"NoFile", {"templates", "k"}, 1, "cannot read 'templates'"},
    {"Overloads", {"k.cuh", "plain"}, 1, "line 11: 'outer::plain(double* x, int n)'"},
    {"NoOverloadAtThatLine", {"k.cuh", "plain", "--line", "3"}, 1, "line 10"},
    {"APack", {"k.cuh", "packed"}, 1, "'typename... Ts' is a pack"},
    {"AManifestThatIsThere", {"k.cuh", "scale_rows", "--name", "taken"}, 1, "--force"},
    {"ATemplateOfThatName", {"k.cuh", "scale_rows", "--name", "picky"}, 1, "--name"},
    {"NoDirectory", {"k.cuh", "scale_rows", "-o", "none/k.toml"}, 1, "is no directory"},
    {"AnUnknownParameter", {"k.cuh", "scale_rows", "M=3"}, 2, "no template parameter 'M'"},
    {"AValueOfTheWrongKind", {"k.cuh", "scale_rows", "N=many"}, 2, "an integer"},
    {"AParameterTwice", {"k.cuh", "scale_rows", "N=1", "N=2"}, 2, "twice"},
    {"NoAssignment", {"k.cuh", "scale_rows", "N"}, 2, "expected P=V"},
    {"NamesThatDisagree", {"k.cuh", "scale_rows", "--name", "a", "-o", "b.toml"}, 2, "disagree"},
    {"ANameThatIsNone", {"k.cuh", "scale_rows", "--name", "a-b"}, 2, "--name"},
    {"NoManifestsName", {"k.cuh", "scale_rows", "-o", "k.txt"}, 2, "NAME.toml"},
    {"AnAbsoluteStub", {"k.cuh", "scale_rows", "--replace", "a.h=/tmp/a.h"}, 2, "beside the manifest"},
    {"AStubWithoutName", {"k.cuh", "scale_rows", "--replace", "a.h"}, 2, "HEADER=STUB"},
    {"AFileNameWithALineEnd", {"line\nend.cuh", "k"}, 2, "rename it"},
    {"AFileNameThatIsNoText", {"latin\xe9.cuh", "k"}, 2, "rename it"},
    {"NoKernel", {"k.cuh"}, 2, "kernel is required"},
    {"AnEmptyKernel", {"k.cuh", ""}, 2, "kernel"},
};
INSTANTIATE_TEST_SUITE_P(Input, ImportRefuses, ::testing::ValuesIn(kRefusals),
                         [](const auto& row) { return row.param.name; });

TEST_F(Import, ASymlinkAtTheOutputIsNotFollowed) {
  fs::create_directories(path("mine"));
  fs::create_directories(path("theirs"));
  write("theirs/file", "kept");
  fs::create_symlink(path("theirs/file"), path("mine/own.toml"));
  const Finished kept = kiln({"import", "k.cuh", "scale_rows", "-o", "mine/own.toml"});
  EXPECT_EQ(kept.status, 1);
  EXPECT_NE(kept.err.find("is there already"), std::string::npos) << kept.err;
  kiln({"import", "k.cuh", "scale_rows", "-o", "mine/own.toml", "--force"});
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path("mine/own.toml"))))
      << "the link is what was overwritten";
  EXPECT_FALSE(exists("theirs/own.toml"));
  EXPECT_FALSE(exists("theirs/own.cu"));
  EXPECT_EQ(text("theirs/file"), "kept");
}

TEST_F(Import, TakesAKernelOfAnIncludedHeader) {
  ::mkdir(path("up").c_str(), 0700);
  ::mkdir(path("up/sub").c_str(), 0700);
  write("up/k.cuh", kSource);
  write("up/sub/all.cu", "#include \"../k.cuh\"\n");
  const Finished r = kiln({"import", "up/sub/all.cu", "scale_rows", "-I", "up", "-o", "scale_rows.toml"});
  EXPECT_EQ(r.status, 0) << r.err;
}

}  // namespace
}  // namespace kiln::test
