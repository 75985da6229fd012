// kiln lint as a process: exit codes, missing files, and findings that need a compile.
#include "support/nightly.hpp"
#include "support/places.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

constexpr const char* kTypical = R"toml(format = 1
[template]
name = "typical"
source = "typical.cu"
instantiate = "typical<{N}>"
[param.N]
kind = "int"
range = [1, 1024]
doc = "d"
[[arg]]
name = "x"
type = "ptr<f32>"
access = "readwrite"
shape = ["n"]
doc = "d"
[[arg]]
name = "n"
type = "i32"
value = 1
doc = "d"
[launch]
grid = ["1"]
block = ["N"]
[[prewarm]]
N = 64
)toml";
constexpr const char* kTypicalSource =
    "template <int N> __global__ void __launch_bounds__(N) typical(float* x, int n) { if (threadIdx.x < n) "
    "x[0] = N; "
    "}\n";

std::string changed(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

/// The finding with this id, such as "warning at typical.toml:5: ..."; empty when there is none.
std::string found(const nlohmann::json& said, const std::string& id) {
  for (const auto& f : said["findings"]) {
    if (f["id"] != id) continue;
    const std::string place = f["place"].is_null() ? "" : f["place"].get<std::string>();
    return f["severity"].get<std::string>() + " at " + place.substr(place.rfind('/') + 1) + ": " +
           f["text"].get<std::string>();
  }
  return "";
}

bool says(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (text.find(word) == std::string::npos) return false;
  return true;
}

template <class Base>
class WithTypical : public Base {
 protected:
  void put(const std::string& manifest, const std::string& source) {
    this->write("templates/typical.toml", manifest);
    this->write("templates/typical.cu", source);
  }
  nlohmann::json lint(int status, Arguments more = {}) {
    more.insert(more.begin(), {"lint", "typical", "--json"});
    const Finished r = this->kiln(more);
    EXPECT_EQ(r.status, status) << r.out << r.err;
    return r.json();
  }
};
using Lint = WithTypical<KilnCommand>;
using LintCompiles = WithTypical<KilnCompiler>;

TEST_F(Lint, SaysWhichFilesAreMissing) {
  put(changed(kTypical, "[param.N]", "[compile]\ninclude_dirs = [\"nowhere\"]\n[param.N]"), kTypicalSource);
  const auto missing = found(lint(1, {"--no-compile"}), "missing-file");
  EXPECT_TRUE(says(missing, {"error at typical.toml:7", "'nowhere'", "include_dirs"})) << missing;
  put(changed(kTypical, "typical.cu", "typcal.cu"), kTypicalSource);
  const auto source = found(lint(1), "missing-file");
  EXPECT_TRUE(says(source, {"error at typical.toml:4", "'typcal.cu'"})) << source;
}

TEST_F(Lint, AManifestThatDoesNotParseIsAFindingAndHidesNoOther) {
  put(changed(kTypical, "kind = \"int\"", "kind = \"itn\""), kTypicalSource);
  write("templates/other.toml",
        changed(changed(kTypical, "\"typical\"", "\"other\""), "[launch]", "[derive]\nD = \"1\"\n[launch]"));
  const Finished r = kiln({"lint", "--no-compile", "--json"});
  EXPECT_EQ(r.status, 1) << r.err;
  const auto said = r.json();
  EXPECT_TRUE(says(found(said, "manifest"), {"error at typical.toml:7", "itn"})) << said;
  EXPECT_TRUE(says(found(said, "unused-derive"), {"warning at other.toml"})) << said;
  EXPECT_GE(said["templates"], 4);
}

TEST_F(Lint, ExitsThreeForWarningsOneWhenStrictAndZeroWhenAllowed) {
  put(changed(kTypical, "[launch]", "[derive]\nD = \"1\"\n[launch]"), kTypicalSource);
  EXPECT_EQ(lint(3, {"--no-compile"})["warnings"], 1);
  lint(1, {"--no-compile", "--strict"});
  const auto allowed = lint(0, {"--no-compile", "--allow", "unused-derive"});
  EXPECT_EQ(allowed["warnings"], 0);
  EXPECT_EQ(allowed["allowed"], 1);
}

TEST_F(Lint, TakesThePathOfAManifest) {
  put(kTypical, kTypicalSource);
  const Finished r = kiln({"lint", path("templates/typical.toml"), "--no-compile", "--json"},
                          {{"KILN_TEMPLATE_PATH", path("empty")}});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.json()["templates"], 1);
}

TEST_F(Lint, TakesThePathOfAManifestInAFamilyOfTheTemplatePath) {
  std::filesystem::create_directories(path("tree/family"));
  write("tree/family/typical.toml", kTypical);
  write("tree/family/typical.cu", std::string("#include \"family/piece.cuh\"\n") + kTypicalSource);
  write("tree/family/piece.cuh", "#pragma once\n");
  const Finished r = kiln({"lint", path("tree/family/typical.toml"), "--no-compile", "--json"},
                          {{"KILN_TEMPLATE_PATH", path("tree")}});
  EXPECT_EQ(r.status, 0) << r.err << r.out;
  EXPECT_EQ(r.json()["errors"], 0) << "its headers are searched where the template path says";
}

TEST_F(Lint, RefusesWhatItDoesNotKnow) {
  const Finished name = kiln({"lint", "scal"});
  EXPECT_EQ(name.status, 2);
  EXPECT_TRUE(says(name.err, {"'scal'", "'scale'"})) << name.err;
  const Finished id = kiln({"lint", "--allow", "unused-derives"});
  EXPECT_EQ(id.status, 2);
  EXPECT_TRUE(says(id.err, {"'unused-derive'"})) << id.err;
  EXPECT_EQ(kiln({"lint", "/nonexistent/x.toml"}).status, 2);
  EXPECT_EQ(kiln({"lint", "--compile", "--no-compile"}).status, 2);
}

TEST_F(Lint, BreaksItsLinesForPeople) {
  put(changed(kTypical, "[launch]", "[derive]\nD = \"1\"\n[launch]"), kTypicalSource);
  const Finished r = kiln({"lint", "typical", "--no-compile"});
  EXPECT_TRUE(says(
      r.out, {"warning  unused-derive", "typical.toml:22", "1 template, 0 compiled: 0 errors, 1 warning"}))
      << r.out;
}

TEST_F(LintCompiles, FindsNothingInWhatIsRight) {
  put(kTypical, kTypicalSource);
  const auto said = lint(0);
  EXPECT_EQ(said["compiled"], 1) << said;
}

TEST_F(LintCompiles, SaysWhatTheCompilerRefuses) {
  put(kTypical, "template <int N> __global__ void typical(float* x, int n) { x[0] = y; }\n");
  const auto said = found(lint(1), "compile");
  EXPECT_TRUE(says(said, {"error at typical.toml:24", "\"y\" is undefined"})) << said;
}

TEST_F(LintCompiles, AClaimOfFewerFeaturesThanTheSourceUsesIsAnError) {
  const std::string exact_only =
      "template <int N> __global__ void __launch_bounds__(N) typical(float* x, int n) {\n"
      "#if __CUDA_ARCH__ >= 1000 && !defined(__CUDA_ARCH_FEAT_SM100_ALL)\n"
      "#error needs the instructions of one architecture\n#endif\n  if (threadIdx.x < n) x[0] = N;\n}\n";
  const auto with = [&](const std::string& arch, int status) {
    put(changed(kTypical, "instantiate", "arch = " + arch + "\ninstantiate"), exact_only);
    return lint(status);
  };
  EXPECT_TRUE(says(found(with("{ min = \"sm_80\", features = \"base\" }", 1), "features"),
                   {"error at typical.toml:", "sm_100_base", "needs the instructions"}));
  EXPECT_TRUE(says(found(with("{ min = \"sm_80\", features = \"family\" }", 1), "features"), {"sm_100f"}));
  EXPECT_EQ(found(with("{ min = \"sm_80\" }", 0), "features"), "");
}

/// A source that does not compile where `condition` holds.
std::string refused_where(const std::string& condition) {
  return "template <int N> __global__ void __launch_bounds__(N) typical(float* x, int n) {\n#if " +
         condition +
         "\n  static_assert(N == 64, \"refused\");\n#endif\n  if (threadIdx.x < n) x[0] = N;\n}\n";
}
std::string claiming(const std::string& arch, const std::string& rows) {
  return changed(changed(kTypical, "instantiate", "arch = { " + arch + " }\ninstantiate"),
                 "[[prewarm]]\nN = 64\n", rows);
}

TEST_F(LintCompiles, AClaimIsCheckedForOneTargetOfEachMajorVersion) {
  const auto with = [&](const std::string& condition, const std::string& arch) {
    put(claiming(arch, "[[prewarm]]\nN = 64\n[[prewarm]]\nN = 128\n"), refused_where(condition));
    return found(lint(condition == "0" ? 0 : 1), "features");
  };
  const std::string base = "min = \"sm_80\", features = \"base\"",
                    family = "min = \"sm_80\", features = \"family\"";
  EXPECT_EQ(with("0", base), "");
  EXPECT_TRUE(says(with("__CUDA_ARCH__ == 1200", base),
                   {"error at typical.toml:27", "sm_120_base", "N=128", "refused"}));
  EXPECT_TRUE(says(with("__CUDA_ARCH__ == 1000", base), {"sm_100_base"}));
  EXPECT_TRUE(says(with("__CUDA_ARCH__ < 900", base), {"images for sm_80,"}));
  EXPECT_TRUE(says(with("__CUDA_ARCH__ == 860", "min = \"sm_86\", features = \"base\""), {"sm_86"}));
  EXPECT_TRUE(says(with("__CUDA_ARCH__ == 1200", family), {"sm_120f"}));
  EXPECT_TRUE(says(with("__CUDA_ARCH__ < 900", family), {"images for sm_80,"}));
}

TEST_F(LintCompiles, ARowThatNamesArchsIsCheckedForThem) {
  const auto with = [&](const std::string& condition, int status) {
    put(claiming("min = \"sm_80\", features = \"base\"",
                 "[[prewarm]]\nN = 64\n[[prewarm]]\nN = 128\narch = [\"sm_86\", \"sm_121_base\"]\n"),
        refused_where(condition));
    return found(lint(status), "features");
  };
  EXPECT_TRUE(says(with("__CUDA_ARCH__ == 1210", 1), {"error at typical.toml:27", "names sm_121_base"}));
  EXPECT_TRUE(says(with("__CUDA_ARCH__ == 860", 1), {"error at typical.toml:27", "names sm_86"}));
  EXPECT_EQ(with("__CUDA_ARCH__ == 1000 || __CUDA_ARCH__ == 800", 0), "") << "the row is for no other archs";
}

TEST_F(LintCompiles, AClaimIsCheckedWithEachValueOfAList) {
  std::string manifest =
      claiming("min = \"sm_80\", features = \"base\"", "[[prewarm]]\nN = [64, 128, 256]\nM = [1, 2]\n");
  manifest = changed(changed(manifest, "typical<{N}>", "typical<{N}, {M}>"), "[[arg]]",
                     "[param.M]\nkind = \"int\"\nrange = [1, 2]\ndoc = \"d\"\n[[arg]]");
  const auto refusing = [&](const std::string& values) {
    put(manifest,
        "template <int N, int M> __global__ void __launch_bounds__(N) typical(float* x, int n) {\n"
        "  static_assert(!(" +
            values + "), \"refused\");\n  if (threadIdx.x < n) x[0] = N + M;\n}\n");
  };
  refusing("N == 128");
  EXPECT_TRUE(says(found(lint(1), "features"), {"N=128", "refused"}));
  refusing("M == 2");
  EXPECT_TRUE(says(found(lint(1), "features"), {"M=2", "refused"}));
  refusing("N == 128 && M == 1");
  EXPECT_EQ(found(lint(0), "features"), "") << "no combination of the values beyond one with each";
  EXPECT_TRUE(says(found(lint(1, {"--compile"}), "features"), {"N=128", "M=1"}));
}

TEST_F(LintCompiles, ARowThatBreaksARequirementIsAnError) {
  put(changed(kTypical, "[launch]",
              "[[require]]\nexpr = \"N > 64\"\nmessage = \"N = {N} is small\"\n[launch]"),
      kTypicalSource);
  const auto said = found(lint(1), "compile");
  EXPECT_TRUE(says(said, {"N = 64 is small"})) << said;
}

TEST_F(LintCompiles, ComparesArgumentsWithTheKernels) {
  put(changed(kTypical, "type = \"i32\"", "type = \"i64\""), kTypicalSource);
  const auto size = found(lint(1), "argument-layout");
  EXPECT_TRUE(says(size, {"error at typical.toml:16", "'n' of type i64, has 8 bytes", "kernel's has 4"}))
      << size;
  put(changed(kTypical, "[launch]", "[[arg]]\nname = \"m\"\ntype = \"i32\"\nvalue = 1\n[launch]"),
      kTypicalSource);
  const auto count = found(lint(1), "argument-layout");
  EXPECT_TRUE(says(count, {"takes 2 arguments of 8, 4 bytes", "declares 3"})) << count;
}

TEST_F(LintCompiles, WarnsOfAKernelWhoseArgumentsAreNotDeclared) {
  std::string bare = kTypical;
  const std::size_t first = bare.find("[[arg]]");
  put(bare.erase(first, bare.find("[launch]") - first), kTypicalSource);
  const auto said = found(lint(3), "argument-layout");
  EXPECT_TRUE(says(said, {"warning at typical.toml:5", "takes 2 arguments", "declares none"})) << said;
}

TEST_F(LintCompiles, AStructWithoutASizeFitsAny) {
  const std::string source =
      "struct S { int v[5]; }; template <int N> __global__ void typical(float* x, S s) { x[0] = s.v[N % 5]; "
      "}\n";
  const auto typed = [](const std::string& type) {
    return changed(changed(kTypical, "type = \"i32\"\nvalue = 1", "type = \"" + type + '"'), "[\"n\"]",
                   "[\"1\"]");
  };
  put(typed("struct"), source);
  EXPECT_EQ(found(lint(0), "argument-layout"), "");
  put(typed("struct<24>"), source);
  const auto said = found(lint(1), "argument-layout");
  EXPECT_TRUE(says(said, {"24 bytes", "has 20"})) << said;
}

TEST_F(LintCompiles, ComparesBlockAndClusterWithTheKernels) {
  put(changed(kTypical, "block = [\"N\"]", "block = [\"2 * N\"]"), kTypicalSource);
  const auto bounds = found(lint(1), "block");
  EXPECT_TRUE(says(bounds, {"error at typical.toml:23", "128 x 1 x 1", "__launch_bounds__ allows 64"}))
      << bounds;
  put(changed(kTypical, "block = [\"N\"]", "block = [\"N\"]\ncluster = [\"4\"]"),
      changed(kTypicalSource, "typical(", "__cluster_dims__(2, 1, 1) typical("));
  const auto cluster = found(lint(1), "cluster");
  EXPECT_TRUE(says(cluster, {"error at typical.toml:24", "4 x 1 x 1", "2 x 1 x 1"})) << cluster;
}

TEST_F(LintCompiles, TellsMapsThatNoCallMakesPossible) {
  const auto lint_of = [&](const std::string& box, int exit) {
    put(changed(
            changed(
                kTypical, "[launch]",
                "[[tensormap]]\nname = \"map\"\nof = \"x\"\ndims = [\"n\", \"n\"]\nstrides = [\"4 * n\"]\n"
                "swizzle = 128\nbox = " +
                    box + "\n[launch]"),
            "instantiate = \"typical<{N}>\"",
            "instantiate = \"typical<{N}>\"\narguments = [\"map\", \"x\", \"n\"]"),
        changed("struct alignas(64) Map { char bytes[128]; };\n" + std::string(kTypicalSource), "typical(",
                "typical(const __grid_constant__ Map map, "));
    return found(lint(exit), "tensormap");
  };
  EXPECT_EQ(lint_of("[32, \"N\"]", 0), "");
  const auto rows = lint_of("[\"N\", 8]", 1);
  EXPECT_TRUE(
      says(rows, {"error at typical.toml:", "'map'", "box[0] = N = 64", "256 bytes", "swizzle = 128"}))
      << rows;
  const auto box = lint_of("[32, \"N * 5\"]", 1);
  EXPECT_TRUE(says(box, {"error at typical.toml:", "'map'", "box[1] = N * 5 = 320 is not in 1..256"})) << box;
}

TEST_F(LintCompiles, ComparesFurtherEntryPointsToo) {
  put(changed(kTypical, "[[prewarm]]",
              "[[kernel]]\nname = \"second\"\ninstantiate = \"second<{N}>\"\n[[kernel.arg]]\nname = "
              "\"y\"\ntype = "
              "\"i64\"\ndoc = \"d\"\n[kernel.launch]\ngrid = [\"1\"]\nblock = [\"1\"]\n[[prewarm]]"),
      std::string(kTypicalSource) + "template <int N> __global__ void second(int y) {}\n");
  const auto said = found(lint(1), "argument-layout");
  EXPECT_TRUE(says(said, {"error at typical.toml:27", "'y' of type i64, has 8 bytes", "kernel's has 4"}))
      << said;
}

TEST_F(LintCompiles, ComparesTheReferencesArguments) {
  write("templates/typical.reference.cu",
        "template <int N> __global__ void reference(double* x, int n, int m) { x[0] = N; }\n");
  put(changed(kTypical, "[[prewarm]]",
              "[reference]\nsource = \"typical.reference.cu\"\ninstantiate = \"reference<{N}>\"\ngrid = "
              "[\"1\"]\nblock = [\"1\"]\n[[prewarm]]"),
      kTypicalSource);
  const auto said = found(lint(1), "argument-layout");
  EXPECT_TRUE(says(said, {"error at typical.toml:25", "declares 2 arguments", "has 3",
                          "a reference must take the kernel's"}))
      << said;
}

/// cooperative_groups.h gives an empty kernel 1,000 variables of cuda::std that it does not use.
TEST_F(LintCompiles, NamesTheDebrisAndTheHeaderThatBroughtIt) {
  put(kTypical, std::string("#include <cooperative_groups.h>\n") + kTypicalSource);
  const auto said = found(lint(3), "debris");
  EXPECT_TRUE(
      says(said, {"warning at typical.toml:4", "variables (cuda::std", "<cooperative_groups.h>", "KiB"}))
      << said;
}

TEST_F(LintCompiles, CountsTheStringsOfPrintf) {
  std::string source =
      "extern \"C\" __device__ int printf(const char*, ...);\ntemplate <int N> __global__ void "
      "typical(float* x, int n) {\n";
  for (int i = 0; i < 8; ++i)
    source += "  if (n == " + std::to_string(i) + ") printf(\"" + std::string(15000, 'a') +
              std::to_string(i) + "\");\n";
  put(kTypical, source + "}\n");
  const auto said = found(lint(3), "debris");
  EXPECT_TRUE(says(said, {"8 strings of printf"})) << said;
}

TEST_F(LintCompiles, SaysThatItSpills) {
  const std::string source =
      "template <int N> __global__ void __launch_bounds__(1024, 2) typical(float* x, int n) {\n"
      "  float v[128];\n#pragma unroll\n  for (int i = 0; i < 128; ++i) v[i] = x[i * n];\n  "
      "__syncthreads();\n"
      "#pragma unroll\n  for (int i = 0; i < 128; ++i) x[i] = v[127 - i] * v[(i * 7) % 128];\n}\n";
  put(kTypical, source);
  EXPECT_TRUE(says(found(lint(0), "spills"), {"note at", "spilled"}));
  put(std::string(kTypical) + "[limits]\nmax_spill_bytes = 0\n", source);
  EXPECT_TRUE(says(found(lint(3), "spills"), {"warning at typical.toml:26", "allows 0 B"}));
}

/// A wgmma whose accumulator is read before the wait.
TEST_F(LintCompiles, PassesOnWhatPtxasWarnsOf) {
  put(kTypical, R"cu(template <int N> __global__ void typical(float* x, int n) {
  float d[4] = {};
  for (int i = 0; i < n; ++i) {
    asm volatile("wgmma.fence.sync.aligned;");
    asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %4, p, 1, 1, 0, 0;}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"((unsigned long long)n));
    asm volatile("wgmma.commit_group.sync.aligned;");
    d[0] += x[i];
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;");
  for (int i = 0; i < 4; ++i) x[i] = d[i];
}
)cu");
  const auto said = found(lint(3, {"--arch", "sm_90a"}), "performance-warnings");
  EXPECT_TRUE(says(said, {"warning at typical.toml:5", "C7511"})) << said;
}

TEST_F(LintCompiles, SaysWhatIsNeverCached) {
  put(kTypical, std::string(kTypicalSource) + "__device__ const char* when = __TIME__;\n");
  const auto said = found(lint(3), "unpublishable");
  EXPECT_TRUE(says(said, {"never cached", "__TIME__"})) << said;
}

TEST_F(LintCompiles, NotesAComputedInclude) {
  write("templates/piece.h", "\n");
  put(kTypical, std::string("#define PIECE \"piece.h\"\n#include PIECE\n") + kTypicalSource);
  EXPECT_TRUE(says(found(lint(0), "computed-include"), {"note at", "extra_includes"}));
}

TEST_F(LintCompiles, TakesFirstValuesWhereNothingSaysWhich) {
  const std::string bare = std::string(kTypical).substr(0, std::string(kTypical).find("[[prewarm]]"));
  put(bare, kTypicalSource);
  const auto without = lint(0);
  EXPECT_EQ(without["compiled"], 0);
  EXPECT_TRUE(says(found(without, "not-compiled"), {"--compile"}));
  EXPECT_EQ(lint(0, {"--compile"})["compiled"], 1);
}

TEST_F(LintCompiles, FindsNoErrorAndNoWarningInWhatIsShipped) {
  // By day ShippedTemplates compiles them all.
  const Finished r = kiln({"lint", nightly() ? "--compile" : "--no-compile", "--json"},
                          {{"KILN_TEMPLATE_PATH", std::string(places::kSourceDirectory) + "/templates"}});
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  const auto said = r.json();
  EXPECT_EQ(said["compiled"], nightly() ? said["templates"] : nlohmann::json(0)) << said;
  EXPECT_GE(said["templates"], 7);
}

}  // namespace
}  // namespace kiln::test
