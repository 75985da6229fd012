// [compile]: only whitelisted options reach the compiler.
#include "tests/manifest/text.hpp"

namespace kiln::source {
namespace {

std::string option(const std::string& text) { return with("[compile]\noptions = [\"" + text + "\"]\n"); }

TEST(ManifestCompile, TakesWhitelistedOptions) {
  for (const char* text :
       {"--use_fast_math", "-use_fast_math", "-fmad=true", "--fmad=false", "-ftz=true", "-prec-div=false",
        "-prec-sqrt=false", "-maxrregcount=64", "--maxrregcount=255", "--extra-device-vectorization",
        "--device-int128", "--diag-suppress=177", "--diag-suppress=1,2,3", "-Xptxas=-O0", "-Xptxas=-O3",
        "--ptxas-options=-O2", "-Xptxas=--register-usage-level=10", "-Xptxas=-dlcm=cg"}) {
    EXPECT_EQ(parse(option(text)).compile.options, std::vector<std::string>{text}) << text;
  }
}

TEST(ManifestCompile, RefusesOptionsByNameWithAReason) {
  const std::pair<const char*, const char*> rows[] = {
      {"-I/usr/include", "include_dirs"},
      {"--include-path=/x", "include_dirs"},
      {"-DX=1", "define"},
      {"--define-macro=X", "define"},
      {"-arch=sm_90", "chooses the arch"},
      {"--gpu-architecture=sm_90", "chooses the arch"},
      {"-rdc=true", "relocatable"},
      {"--relocatable-device-code=true", "relocatable"},
      {"-dc", "relocatable"},
      {"-dlto", "link-time"},
      {"--pch", "precompiled headers"},
      {"-pch", "precompiled headers"},
      {"--use-pch=x", "precompiled headers"},
      {"-G", "debug information"},
      {"--device-debug", "debug information"},
      {"-lineinfo", "line information"},
      {"--generate-line-info", "line information"},
      {"--no-source-include", "nested quoted includes"},
      {"-std=c++20", "std ="},
      {"--minimal", "minimal = true"},
      {"-default-device", "default_device = true"},
      {"-include=x.h", "preinclude"},
      {"--pre-include=x.h", "preinclude"},
  };
  for (const auto& [text, reason] : rows)
    expect_refused(option(text), "options",
                   {"[compile] options", "'" + std::string(text) + "' is refused", reason});
}

TEST(ManifestCompile, RefusesEverythingElse) {
  for (const char* text : {"--time=-", "-ewp", "x.cu", "fmad=true", "---fmad=true",
                           "--fdevice-time-trace=/tmp/x", "-frandom-seed=1", "-w", "--fmad"}) {
    expect_refused(option(text), "options", {"'" + std::string(text) + "'", "allowed: --use_fast_math"});
  }
  for (const char* text :
       {"-fmad=maybe", "-fmad=", "--use_fast_math=true", "-maxrregcount=0", "-maxrregcount=256",
        "-maxrregcount=-1", "-maxrregcount=9x", "--diag-suppress=", "--diag-suppress=x", "-Xptxas=-v",
        "-Xptxas=-O4", "-Xptxas=-O3,-v", "-Xptxas=--register-usage-level=11", "-Xptxas=-dlcm=zz",
        "-Xptxas=-O3 -o /tmp/x"}) {
    expect_refused(option(text), "options", {"'" + std::string(text) + "' has a value that is not allowed"});
  }
  expect_refused(option("-fmad=true\\u0000"), "options", {"one line without control characters"});
  expect_refused(option("-fmad=true\\n-I/"), "options", {"'-fmad=true\\n-I/'"});
  expect_refused(option(""), "options", {"one line"});
}

TEST(ManifestCompile, Std) {
  for (const char* text : {"c++14", "c++17", "c++20"})
    EXPECT_EQ(parse(with("[compile]\nstd = \"" + std::string(text) + "\"\n")).compile.std, text);
  EXPECT_EQ(parse(kManifest).compile.std, "c++17");
  expect_refused(with("[compile]\nstd = \"c++23\"\n"),
                 "std =", {"'c++23' is unknown; allowed: c++14 c++17 c++20"});
}

TEST(ManifestCompile, ACutImpliesDefaultDevice) {
  const auto is_default = [](const std::string& lines) {
    return parse(with("[compile]\n" + lines)).compile.default_device;
  };
  EXPECT_FALSE(is_default(""));
  EXPECT_TRUE(is_default("host_code = \"cut\"\n"));
  EXPECT_FALSE(is_default("host_code = \"cut\"\ndefault_device = false\n"));
}

TEST(ManifestCompile, Define) {
  expect_refused(with("[compile]\ndefine = { \"A B\" = \"1\" }\n"), "define", {"'A B' must be [A-Za-z_]"});
  expect_refused(with("[compile]\ndefine = { A = 1 }\n"), "define",
                 {"[compile] define A", "expected a string, found an integer"});
  expect_refused(with("[compile]\ndefine = { A = \"1\\n2\" }\n"), "define", {"'1\\n2' must be one line"});
  expect_refused(with("[compile]\ndefine = { A = \"\\u0000\" }\n"), "define", {"must be one line"});
}

TEST(ManifestCompile, Headers) {
  for (const std::string key : {"preinclude", "extra_includes"}) {
    expect_refused(with("[compile]\n" + key + " = [\"<x.h>\"]\n"), key,
                   {"'<x.h>' must be a header's name without quotes or brackets"});
    expect_refused(with("[compile]\n" + key + " = [\"/x.h\"]\n"), key, {"'/x.h' must be relative"});
    expect_refused(with("[compile]\n" + key + " = [\"\"]\n"), key, {"one line"});
    expect_refused(with("[compile]\n" + key + " = \"x.h\"\n"), key,
                   {"expected an array of strings, found a string"});
  }
}

}  // namespace
}  // namespace kiln::source
