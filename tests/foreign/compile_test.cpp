// Sources that were not written for kiln (tests/fixtures/foreign), each with other features. They compile
// with only their manifests, for every generation of architectures, without a GPU.
#include <filesystem>

#include "support/nightly.hpp"
#include "support/places.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {
using nlohmann::json;

class ForeignKernels : public KilnCompiler {
 protected:
  static std::string fixtures() { return std::string(places::kSourceDirectory) + "/tests/fixtures/foreign"; }

  json compile(const Arguments& wanted, const std::string& arch, const std::string& templates = fixtures(),
               const std::string& cache = "cache") {
    Arguments all = {"compile"};
    all.insert(all.end(), wanted.begin(), wanted.end());
    for (const std::string& more : {std::string("--arch"), arch, std::string("--template-path"), templates,
                                    std::string("--cache-dir"), path(cache), std::string("--json")})
      all.push_back(more);
    const Finished done = kiln(all);
    EXPECT_EQ(done.status, 0) << wanted[0] << ' ' << arch << '\n' << done.err << done.out;
    return done.json();
  }
  json show(const json& compiled) {
    return kiln({"show", compiled.value("key", ""), "--cache-dir", path("cache"), "--json"}).json();
  }
  static std::vector<int> sizes(const json& entry) {
    std::vector<int> out;
    for (const json& argument : entry.at("arguments")) out.push_back(argument.at("size"));
    return out;
  }
  /// The error message of a compile that must fail with status 1.
  std::string refused(const std::string& name, const std::string& manifest, const std::string& source,
                      const Arguments& more = {}) {
    std::filesystem::create_directories(path("own"));
    write("own/" + name + ".toml", manifest);
    write("own/" + name + ".cu", source);
    Arguments all = {"compile", name, "--arch", "90", "--template-path", path("own"), "--cache-dir", cache()};
    all.insert(all.end(), more.begin(), more.end());
    const Finished done = kiln(all);
    EXPECT_EQ(done.status, 1) << done.out;
    return done.err;
  }
  static std::string manifest(const std::string& name, const std::string& more) {
    return "format = 1\n[template]\nname = \"" + name + "\"\nsource = \"" + name +
           ".cu\"\ninstantiate = \"f\"\n" + more + "[launch]\ngrid = [1]\nblock = [32]\n";
  }
};

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << text

const char* const kEveryArch[] = {"sm_80", "sm_90a", "sm_100a", "sm_120a"};

TEST_F(ForeignKernels, AHostStyleHeaderCompilesWithShimsAndReplacedHeaders) {
  for (const char* arch : kEveryArch) {
    const json done = compile({"host_style", "T=f64"}, arch);
    EXPECT_EQ(done.value("outcome", ""), "compiled");
    EXPECT_TRUE(done.at("unpublishable").is_null()) << done.dump();
    EXPECT_EQ(compile({"host_style", "T=f64"}, arch).value("outcome", ""), "disk");
    EXPECT_EQ(sizes(show(done)), (std::vector<int>{8, 8, 8}));
  }
}

TEST_F(ForeignKernels, TypesStructsOverloadsAndHiddenNamesCompile) {
  for (const char* arch : kEveryArch) {
    const json done = compile({"types", "T=f32", "OP=scale", "ROWS=4", "ROUND=nearest"}, arch);
    EXPECT_EQ(
        done.value("name_expression", ""),
        "lib::transform<float, lib::Tile{.rows = 4, .columns = 8}, lib::Scale<float>, lib::Round::nearest>");
    EXPECT_TRUE(done.at("unpublishable").is_null()) << done.dump();
    ASSERT_EQ(done.at("entries").size(), 4u);
    EXPECT_EQ(done.at("entries")[2].value("lowered_name", ""), "plain_name");
    EXPECT_EQ(done.at("globals").at("counter").value("bytes", 0), 4);
    EXPECT_EQ(sizes(show(done)), (std::vector<int>{8, 8, 4, 4})) << "lib::Scale<float> has four bytes";
    EXPECT_EQ(sizes(show(compile({"types", "T=f64", "OP=scale", "ROWS=4"}, arch)))[2], 8);
  }
}

TEST_F(ForeignKernels, EntryPointsGlobalsAndConstantsOfOneImageAreRecorded) {
  for (const char* arch : kEveryArch) {
    const json done = compile({"state", "T=f64", "D=16"}, arch);
    EXPECT_EQ(done.at("exports"), json({{"STORAGE", 2176}, {"PARAMS", 152}, {"MOST", 77}}));
    EXPECT_EQ(done.at("globals").at("bias").value("bytes", 0), 128);
    EXPECT_EQ(done.at("globals").at("total").value("bytes", 0), 8);
    ASSERT_EQ(done.at("entries").size(), 1u);
    EXPECT_EQ(done.at("entries")[0].value("entry", ""), "read_total");
    EXPECT_EQ(sizes(done.at("entries")[0]), (std::vector<int>{8}));
    const json shown = show(done);
    EXPECT_EQ(sizes(shown), (std::vector<int>{152}));
    EXPECT_EQ(shown.at("exports"), done.at("exports"));
    EXPECT_EQ(shown.at("entries"), done.at("entries"));
  }
}

TEST_F(ForeignKernels, StructsBeyondFourKilobytesAndHandlesHaveTheirSizes) {
  for (const char* arch : kEveryArch) {
    for (const int bytes : {1, 4096, 4097, 32746}) {
      EXPECT_EQ(sizes(show(compile({"big_struct", "BYTES=" + std::to_string(bytes)}, arch))),
                (std::vector<int>{8, bytes, 2}))
          << arch;
    }
    EXPECT_EQ(sizes(show(compile({"texture"}, arch))), (std::vector<int>{8, 8, 8, 4}));
    compile({"cooperative"}, arch);
    if (std::string(arch) == "sm_80") continue;
    EXPECT_EQ(sizes(show(compile({"tma", "ROWS=16", "COLUMNS=32"}, arch))), (std::vector<int>{128, 8}));
    const json cluster = show(compile({"cluster"}, arch));
    EXPECT_EQ(cluster.at("cluster"), json({2, 1, 1}));
    EXPECT_EQ(cluster.value("max_threads", 0), 64);
  }
}

TEST_F(ForeignKernels, AnArchHasItsOwnSourceOrNone) {
  EXPECT_EQ(compile({"by_arch"}, "sm_80").value("name_expression", ""), "which<2>");
  EXPECT_EQ(compile({"by_arch"}, "sm_120a").value("name_expression", ""), "which<2>");
  const json hopper = compile({"by_arch"}, "sm_90a");
  EXPECT_EQ(hopper.value("name_expression", ""), "which_sm90<9>");
  EXPECT_EQ(hopper.at("params").value("WAYS", ""), "9");
  const Finished none = kiln(
      {"compile", "by_arch", "--arch", "sm_100a", "--template-path", fixtures(), "--cache-dir", cache()});
  EXPECT_EQ(none.status, 2) << "what is asked for can never be";
  EXPECT_SAYS(none.err, "'by_arch' does not run on sm_100a; it runs on: sm_80 sm_90a sm_120a");
}

TEST_F(ForeignKernels, KeysAndImagesAreTheSameInAnotherDirectory) {
  const std::string elsewhere = path("some/other/place");
  std::filesystem::create_directories(path("some/other"));
  std::filesystem::copy(fixtures(), elsewhere, std::filesystem::copy_options::recursive);
  for (const Arguments& wanted : std::vector<Arguments>{{"host_style", "T=f32"},
                                                        {"types", "T=i32", "ROWS=2"},
                                                        {"state", "T=f32", "D=4"},
                                                        {"tma", "ROWS=8", "COLUMNS=32"}}) {
    const json here = compile(wanted, "sm_90a"), there = compile(wanted, "sm_90a", elsewhere, "other-cache");
    EXPECT_EQ(there.value("outcome", ""), "compiled") << "another cache";
    EXPECT_EQ(here.value("key", "-"), there.value("key", "+")) << wanted[0];
    for (const auto& [cache, out] : {std::pair("cache", "one.cubin"), std::pair("other-cache", "two.cubin")})
      kiln({"show", here.value("key", ""), "--cache-dir", path(cache), "--image", path(out)});
    const auto one = base::read_file(path("one.cubin")), two = base::read_file(path("two.cubin"));
    ASSERT_TRUE(one && two) << wanted[0];
    EXPECT_EQ(one->bytes, two->bytes) << wanted[0];
  }
}

TEST_F(ForeignKernels, EachPieceOfTheManifestIsInTheKey) {
  const std::string source =
      "#include \"x.h\"\ntemplate <int N> struct S { char c[N]; };\n__device__ int g;\n__device__ int h;\n"
      "__global__ void f(int* o) { *o = VALUE + g + h; }\n__global__ void e(int* o) { *o = 0; }\n";
  std::filesystem::create_directories(path("own"));
  write("own/x.h", "#define VALUE 1\n");
  write("own/y.h", "#define VALUE 1\n");
  write("own/z.h", "#define VALUE 2\n");
  std::map<std::string, std::string> keys;
  const auto key = [&](const std::string& more) {
    write("own/k.toml", manifest("k", more));
    write("own/k.cu", source);
    const json done = compile({"k"}, "sm_90a", path("own"));
    const auto [known, fresh] = keys.emplace(done.value("key", ""), more);
    EXPECT_TRUE(fresh) << "'" << more << "' and '" << known->second << "' have one key";
    return done.value("key", "");
  };
  const std::string entry =
      "[[kernel]]\nname = \"%\"\ninstantiate = \"e\"\n[kernel.launch]\ngrid = [1]\nblock = [1]\n";
  const auto named = [&](const std::string& name) {
    return std::string(entry).replace(entry.find('%'), 1, name);
  };
  for (const std::string& more :
       {std::string(), std::string("[compile]\nndebug = false\n"),
        std::string("[compile]\nstd = \"c++20\"\n"), std::string("[compile]\ndefault_device = true\n"),
        std::string("[compile]\nminimal = true\n"),
        std::string("[compile]\noptions = [\"--use_fast_math\"]\n"),
        std::string("[compile]\noptions = [\"-Xptxas=-O2\"]\n"),
        std::string("[compile]\ndefine = { A = \"1\" }\n"),
        std::string("[compile]\ndefine = { A = \"2\" }\n"),
        std::string("[compile]\npreinclude = [\"y.h\"]\n"),
        std::string("[compile]\nreplace = { \"x.h\" = \"y.h\" }\n"),
        std::string("[compile]\nreplace = { \"x.h\" = \"z.h\" }\n"),
        std::string("[export]\nA = \"sizeof(S<1>)\"\n"), std::string("[export]\nA = \"sizeof(S<2>)\"\n"),
        std::string("[export]\nB = \"sizeof(S<2>)\"\n"),
        std::string("[[global]]\nname = \"a\"\nsymbol = \"g\"\n"),
        std::string("[[global]]\nname = \"a\"\nsymbol = \"h\"\n"), named("one"), named("two")}) {
    key(more);
  }
  const std::size_t before = keys.size();
  write("own/z.h", "#define VALUE 3\n");
  key("[compile]\nreplace = { \"x.h\" = \"z.h\" }\n# the same text, and another stub\n");
  EXPECT_EQ(keys.size(), before + 1);
  EXPECT_EQ(compile({"k"}, "sm_90a", path("own")).value("outcome", ""), "disk");
}

TEST_F(ForeignKernels, ShimsStandBeforeAndBehindCub) {
  KILN_NIGHTLY_ONLY();
  const std::string cub = "#include <cub/block/block_reduce.cuh>\n",
                    shims = "#include <cmath>\n#include <math.h>\n";
  const std::string kernel = "__global__ void f(float* x) { x[0] = std::sqrt(x[0]) + INFINITY; }\n";
  std::filesystem::create_directories(path("own"));
  for (const char* name : {"behind", "before"}) {
    write("own/" + std::string(name) + ".toml", manifest(name, "[compile]\nhost_headers = \"shim\"\n"));
    write("own/" + std::string(name) + ".cu",
          (name == std::string("behind") ? cub + shims : shims + cub) + kernel);
    EXPECT_EQ(compile({name}, "sm_90a", path("own")).value("outcome", ""), "compiled");
  }
}

TEST_F(ForeignKernels, EachShimCompilesAloneAndBesideTheToolkit) {
  std::filesystem::create_directories(path("own"));
  std::filesystem::copy(fixtures() + "/shims.cu", path("own"));
  for (const std::string more :
       {"std = \"c++14\"", "std = \"c++20\"", "define = { SHIMS_BESIDE_TOOLKIT = \"1\" }"}) {
    std::string text = manifest("shims", "[compile]\nhost_headers = \"shim\"\n" + more + "\n");
    text.replace(text.find("\"f\""), 3, "\"shims::use<float>\"");
    write("own/shims.toml", text);
    EXPECT_EQ(compile({"shims"}, "sm_90a", path("own")).value("outcome", ""), "compiled") << more;
  }
}

TEST_F(ForeignKernels, HostClassesOfTheShimsCompileWithoutMarks) {
  std::filesystem::create_directories(path("own"));
  std::filesystem::copy(fixtures() + "/host_shims.cu", path("own"));
  for (const std::string more : {"", "host_code = \"cut\"", "preinclude = [\"nvcc.h\", \"unmark_host.h\"]"}) {
    std::string text =
        manifest("host_shims", "[compile]\nhost_headers = \"shim\"\ndefault_device = true\n" + more + "\n");
    text.replace(text.find("\"f\""), 3, "\"host_shims::use\"");
    write("own/host_shims.toml", text);
    EXPECT_EQ(compile({"host_shims"}, "sm_90a", path("own")).value("outcome", ""), "compiled") << more;
  }
}

TEST_F(ForeignKernels, AssertFailIsThereWhereNvccHasIt) {
  std::filesystem::create_directories(path("own"));
  write("own/fails.toml",
        manifest("fails", "[compile]\nhost_headers = \"shim\"\npreinclude = [\"nvcc.h\"]\n"));
  write("own/fails.cu",
        "__global__ void f(int* o) { if (*o < 0) __assert_fail(\"*o\", __FILE__, __LINE__, \"f\"); }\n");
  EXPECT_EQ(compile({"fails"}, "sm_90a", path("own")).value("outcome", ""), "compiled");
}

TEST_F(ForeignKernels, AtomicOperationsOfPyTorchCompileForEachType) {
  KILN_NIGHTLY_ONLY();
  for (const char* type : {"u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"}) {
    for (const char* arch : {"sm_75", "sm_90a"})
      EXPECT_EQ(compile({"torch_atomics", std::string("T=") + type}, arch).value("outcome", ""), "compiled");
  }
}

TEST_F(ForeignKernels, ErrorsNameTheSourceAndNotTheTemplate) {
  std::filesystem::create_directories(path("own/include"));
  write("own/include/kernels.cuh", "\n__global__ void f(float* x) { x[0] = nothing; }\n");
  std::string text = manifest("named", "");
  text.replace(text.find("named.cu"), 8, "include/kernels.cuh");
  const std::string said = refused("named", text, "");
  EXPECT_SAYS(said, "include/kernels.cuh(2): error");
  EXPECT_EQ(said.find("named.cu("), std::string::npos) << said;
}

TEST_F(ForeignKernels, ShimsAreInTheKeyAndOnlyWhereAsked) {
  const std::string source = "#include <cstdint>\n__global__ void f(int64_t* o) { *o = 1; }\n";
  const std::string bare = refused("shims", manifest("shims", ""), source);
  EXPECT_SAYS(bare, "cstdint");
  EXPECT_SAYS(bare, "host_headers = \"shim\"");
  write("own/shims.toml", manifest("shims", "[compile]\nhost_headers = \"shim\"\n"));
  const json shown = show(compile({"shims"}, "sm_90a", path("own")));
  bool there = false;
  for (const json& field : shown.at("key_fields"))
    there = there || (field.at("label") == "include" && field.at("values")[1] == "<cstdint>");
  EXPECT_TRUE(there) << "a changed shim is another key";
}

TEST_F(ForeignKernels, AConstantThatIsNoIntegerSaysSo) {
  const std::string source =
      "struct S { int a; };\n__device__ int v;\n__global__ void f(int* o) { *o = v; }\n";
  for (const std::string bad : {"1.5", "S{{1}}", "v", "18446744073709551615ull", "missing", "\"text\""}) {
    const std::string said =
        refused("bad", manifest("bad", "[export]\nSIZE = '" + std::string(bad) + "'\n"), source);
    EXPECT_SAYS(said, "[export] SIZE");
    EXPECT_SAYS(said, "integer constant");
  }
}

TEST_F(ForeignKernels, AMissingSymbolOrEntryPointSaysWhich) {
  const std::string source =
      "__device__ int v;\n__device__ int g() { return 1; }\n__global__ void f(int* o) { *o = v; }\n";
  EXPECT_SAYS(refused("bad", manifest("bad", "[[global]]\nname = \"a\"\nsymbol = \"absent\"\n"), source),
              "absent");
  EXPECT_SAYS(refused("bad", manifest("bad", "[[global]]\nname = \"a\"\nsymbol = \"g\"\n"), source),
              "the symbol 'g' of a [[global]] is no variable that the source declares");
  const std::string entry =
      "[[kernel]]\nname = \"b\"\ninstantiate = \"g\"\n[kernel.launch]\ngrid = [1]\nblock = [1]\n";
  EXPECT_SAYS(refused("bad", manifest("bad", entry), source),
              "instantiate gives 'g', which is no __global__ function");
}

TEST_F(ForeignKernels, AManifestWithOtherArgumentsThanTheKernelIsRefused) {
  const std::string source = "struct P { int a[3]; };\n__global__ void f(P p, int* o) { *o = p.a[0]; }\n";
  const auto with = [&](const std::string& type) {
    return manifest("bad", "[[arg]]\nname = \"p\"\ntype = \"" + type +
                               "\"\n[[arg]]\nname = \"o\"\ntype = \"ptr<i32>\"\n");
  };
  EXPECT_SAYS(
      refused("bad", with("struct<16>"), source),
      "argument 0 'p' is struct<16> of 16 bytes in the manifest, and has 12 in the kernel: write type = "
      "\"struct<12>\", or \"struct\"");
  EXPECT_SAYS(refused("bad", manifest("bad", "[[arg]]\nname = \"p\"\ntype = \"struct<12>\"\n"), source),
              "the manifest declares 1 arguments, and the kernel has 2");
  write("own/bad.toml", with("struct"));
  compile({"bad"}, "sm_90a", path("own"));
}

TEST_F(ForeignKernels, AReplacementThatIsNotThereSaysSo) {
  EXPECT_SAYS(refused("bad", manifest("bad", "[compile]\nreplace = { \"h.h\" = \"nowhere.h\" }\n"),
                      "#include \"h.h\"\n__global__ void f(int* o) { *o = 1; }\n"),
              "[compile] replace maps it to 'nowhere.h'");
}

}  // namespace
}  // namespace kiln::test
