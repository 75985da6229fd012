// Precompiled headers: images have the same bytes as without them, and a stale header is never used.
#include <atomic>
#include <fstream>

#include "compile/pch_fixture.hpp"
#include "kiln/error.hpp"
#include "support/nightly.hpp"

namespace kiln::testing {
namespace {

struct HeavyUnit {
  const char *name, *arch, *includes, *body;
};

class HeavyUnitTest : public PrecompiledHeaderTest, public ::testing::WithParamInterface<HeavyUnit> {};

TEST_P(HeavyUnitTest, GivesTheSameBytesInTwoWorkersAsWithout) {
  if (GetParam().name != std::string("linkage")) {  // this unit has the fewest headers
    KILN_NIGHTLY_ONLY();
  }
  if (ask_.toolkit.include_dirs.empty()) GTEST_SKIP() << "no toolkit headers on this machine";
  write_unit(GetParam().includes, GetParam().body);
  tree_.write("t/linkage.h",
              "namespace { __device__ int counter; }\nstatic __device__ int other;\n"
              "static __device__ __noinline__ int add(int n) { return atomicAdd(&other, n) + counter; }\n");
  ask_.arch = GetParam().arch;
  HeaderSettings settings;
  settings.created_by = 1;
  PrecompiledHeaders headers(settings);
  expect_same_in_both(headers, 3, 4, GetParam().name);
  const auto counts = headers.counts();
  EXPECT_EQ(counts.created, 1u);
  EXPECT_EQ(counts.proven, 1u) << "in another worker than its creator, so for all";
  EXPECT_EQ(counts.used, 3u) << "its creator's worker among them";
  EXPECT_EQ(counts.off, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Units, HeavyUnitTest,
    ::testing::Values(
        HeavyUnit{"reduce", "sm_90a", "#include <cub/block/block_reduce.cuh>\n",
                  "using R = cub::BlockReduce<float, 64>; __shared__ typename R::TempStorage s; "
                  "out[i] = T(R(s).Sum(float(out[i])) + N);"},
        HeavyUnit{"sort", "sm_80", "#include <cub/block/block_radix_sort.cuh>\n",
                  "using S = cub::BlockRadixSort<float, 64, 2>; __shared__ typename S::TempStorage s; "
                  "float v[2] = {float(out[i]), N}; S(s).Sort(v); out[i] = T(v[0]);"},
        HeavyUnit{
            "groups", "sm_120a",
            "#include <cuda_bf16.h>\n#include <cooperative_groups.h>\n"
            "#include <cooperative_groups/reduce.h>\n",
            "namespace g = cooperative_groups; auto w = g::tiled_partition<32>(g::this_thread_block()); "
            "out[i] = T(g::reduce(w, float(__float2bfloat16(out[i])), g::plus<float>()) + N);"},
        HeavyUnit{"linkage", "sm_90a", "#include <cuda/std/type_traits>\n#include \"linkage.h\"\n",
                  "out[i] = T(add(N) + cuda::std::is_same_v<T, float>);"}),
    [](const auto& each) { return std::string(each.param.name); });

TEST_F(PrecompiledHeaderTest, TheFirstCompileOnlyLeavesANoteAndTheSecondCreates) {
  write_unit("#include \"a.h\"\n");
  tree_.write("t/a.h", "#define VALUE 1\n");
  HeaderSettings settings = eager();
  settings.created_by = HeaderSettings().created_by;
  PrecompiledHeaders headers(settings);
  expect_same_in_both(headers, 1, 1, "first");
  EXPECT_EQ(headers.counts().created, 0u);
  expect_same_in_both(headers, 2, 1, "second");
  EXPECT_EQ(headers.counts().created, 1u);
}

TEST_F(PrecompiledHeaderTest, TheFirstOfAPlanCreates) {
  write_unit("#include \"a.h\"\n");
  tree_.write("t/a.h", "#define VALUE 1\n");
  HeaderSettings settings = eager();
  settings.created_by = HeaderSettings().created_by;
  PrecompiledHeaders headers(settings);
  const std::atomic<compile::Urgency> ahead{compile::Urgency::ahead};
  const MadeUnit m = made(1);
  const auto first = compile::compile({m.unit, m.closure, m.made, false, [] { return true; }}, ask_.toolkit,
                                      a_, {.urgency = &ahead}, &headers);
  EXPECT_EQ(headers.counts().created, 1u);
  expect_same(first, compile_in(plain_, m, nullptr), "first of a plan");
}

TEST_F(PrecompiledHeaderTest, LightUnitsHaveNone) {
  write_unit("#include \"a.h\"\n");
  tree_.write("t/a.h", "#define VALUE 1\n");
  HeaderSettings settings;
  settings.created_by = 1;
  PrecompiledHeaders headers(settings);
  expect_same_in_both(headers, 1, 3, "light");
  EXPECT_EQ(headers.counts().created, 0u);
}

TEST_F(PrecompiledHeaderTest, AWorkerItWasNotProvenInProvesItAgain) {
  write_unit("#include \"a.h\"\n");
  tree_.write("t/a.h", "#define VALUE 1\n");
  PrecompiledHeaders headers(eager());
  for (int n : {1, 3, 5}) compile_in(a_, made(n), &headers);  // one worker: creates, proves and uses
  EXPECT_EQ(headers.counts().proven, 1u);
  EXPECT_EQ(headers.counts().used, 2u);
  expect_same_in_both(headers, 2, 1, "refused in b: not proven there");
  EXPECT_EQ(headers.counts().used, 2u);
  expect_same_in_both(headers, 4, 2, "b proves, a uses");
  EXPECT_EQ(headers.counts().proven, 2u);
  EXPECT_EQ(headers.counts().used, 4u);
}

TEST_F(PrecompiledHeaderTest, AChangedHeaderIsNeverServedStale) {
  write_unit("#include \"a.h\"\n");
  tree_.write("t/a.h", "#include \"deep/b.h\"\n#define VALUE (1 + DEEP)\n");
  const std::string deep = tree_.write("t/deep/b.h", "#include \"../deep/c.h\"\n");
  tree_.write("t/deep/c.h", "#define DEEP 10\n");
  PrecompiledHeaders headers(eager());
  expect_same_in_both(headers, 1, 3, "before");
  ASSERT_EQ(headers.counts().used, 2u);
  const auto first = compile_in(a_, made(1), &headers);
  ASSERT_EQ(headers.counts().used, 3u);

  tree_.write("t/a.h", "#include \"deep/b.h\"\n#define VALUE (2 + DEEP)\n");  // a direct change
  const auto second = compile_in(a_, made(1), &headers);
  EXPECT_EQ(headers.counts().used, 3u) << "another content is another header";
  EXPECT_FALSE(second.image == first.image);
  expect_same_in_both(headers, 1, 3, "a direct change");

  // A change deep inside, with the same size and the same mtime.
  const std::string c = tree_.at("t/deep/c.h");
  const auto time = fs::last_write_time(c);
  std::ofstream(c) << "#define DEEP 77\n";
  fs::last_write_time(c, time);
  expect_same_in_both(headers, 1, 3, "a deep change");
  EXPECT_FALSE(compile_in(a_, made(1), &headers).image == second.image);

  tree_.write("t/deep/c.h", "#define DEEP 10\n");  // the first content again: its header may be used
  tree_.write("t/a.h", "#include \"deep/b.h\"\n#define VALUE (1 + DEEP)\n");
  EXPECT_TRUE(compile_in(b_, made(1), &headers).image == first.image);
  EXPECT_EQ(headers.counts().off, 0u);
}

TEST_F(PrecompiledHeaderTest, WhatReachesTheFrontEndIsInTheName) {
  write_unit("#include \"a.h\"\n");
  tree_.write("t/a.h", "#define VALUE 1\n");
  const MadeUnit m = made(1);
  compile::WorkerRequest request;
  request.source = "x", request.arch = "sm_90a", request.options = {"-DA=1"},
  request.program_name = "/dev/null/k.cu";
  request.roots = {{".k0", "/somewhere"}};
  const auto name = [&](const auto& change) {
    compile::WorkerRequest r = request;
    source::Closure closure = m.closure;
    toolchain::Toolkit toolkit = ask_.toolkit;
    HeaderSettings settings = eager();
    change(r, closure, toolkit, settings);
    return compile::header_name(r, closure, toolkit, settings);
  };
  const auto base = name([](auto&...) {});
  ASSERT_TRUE(base);
  const auto expect_other = [&](const char* what, const auto& change) {
    const auto other = name(change);
    EXPECT_TRUE(other && *other != *base) << what;
  };
  const auto expect_none = [&](const char* what, const auto& change) { EXPECT_FALSE(name(change)) << what; };
  expect_other("source", [](auto& r, auto&...) { r.source += ' '; });
  expect_other("arch", [](auto& r, auto&...) { r.arch = "sm_80"; });
  expect_other("option", [](auto& r, auto&...) { r.options = {"-DA=2"}; });
  expect_other("program name", [](auto& r, auto&...) { r.program_name += 'x'; });
  expect_other("roots", [](auto& r, auto&...) { r.roots.emplace_back(".t0", "/x"); });
  expect_other("content", [](auto&, auto& c, auto&...) { c.files[0].digest.bytes[3] ^= 1; });
  expect_other("where the compiler sees it", [](auto&, auto& c, auto&...) { c.files[0].symbolic += 'x'; });
  expect_other("another file", [](auto&, auto& c, auto&...) { c.files.push_back(c.files[0]); });
  expect_other("nvrtc", [](auto&, auto&, auto& t, auto&) { t.compiler_identity += "0"; });
  expect_other("builtins", [](auto&, auto&, auto& t, auto&) { t.builtins_identity += "0"; });
  expect_other("heap", [](auto&, auto&, auto&, auto& s) { s.heap_bytes /= 2; });
  expect_none("no build-id", [](auto&, auto&, auto& t, auto&) { t.compiler_identity.clear(); });
  expect_none("a memo's digests", [](auto&, auto& c, auto&...) { c.memoised = true; });
  expect_none("__DATE__", [](auto&, auto& c, auto&...) { c.date_time = {".k0/a.h"}; });
  expect_none("a computed probe", [](auto&, auto& c, auto&...) { c.computed_probes = {""}; });
  expect_none("light", [](auto&, auto&, auto&, auto& s) { s.min_files = 2; });
  expect_none("switched off", [](auto&, auto&, auto&, auto& s) { s.enabled = false; });
  const auto same = name([](auto& r, auto&...) {
    r.random_seed = "other", r.name_expressions = {"k<2>"}, r.want_ptx = true;
    r.roots[0].second = "/elsewhere";
  });
  EXPECT_TRUE(same && *same == *base) << "what may differ between users";
}

TEST_F(PrecompiledHeaderTest, AHeaderThatChangedSinceItWasHashedIsNotConfirmed) {
  write_unit("#include \"a.h\"\n");
  tree_.write("t/a.h", "#define VALUE 1\n");
  PrecompiledHeaders headers(eager());
  const MadeUnit old = made(1);
  tree_.write("t/a.h", "#define VALUE 2\n", true);
  const auto raced = compile_in(a_, old, &headers);
  EXPECT_NE(raced.unpublishable.find("changed"), std::string::npos);
  EXPECT_EQ(headers.counts().created, 0u);
  EXPECT_EQ(headers.counts().off, 1u);
  tree_.write("t/a.h", "#define VALUE 1\n");  // the old key again: no header may be found under it
  expect_same_in_both(headers, 1, 3, "the old content");
  EXPECT_EQ(headers.counts().used, 0u);
  tree_.write("t/a.h", "#define VALUE 3\n");
  expect_same_in_both(headers, 1, 3, "new content");
  EXPECT_EQ(headers.counts().used, 2u);
}

TEST_F(PrecompiledHeaderTest, AFileThatAppearedWhileItWasMadeIsNotConfirmed) {
  write_unit(
      "#if __has_include(\"maybe.h\")\n#define VALUE 2\n#else\n#define VALUE 1\n#endif\n#include \"a.h\"\n");
  tree_.write("t/a.h", "\n");
  PrecompiledHeaders headers(eager());
  const MadeUnit before = made(1);
  tree_.write("t/maybe.h", "\n");  // the compiler does not list it, and no file of the closure changed
  compile_in(a_, before, &headers, [&] { return made(1).made.text == before.made.text; });
  EXPECT_EQ(headers.counts().created, 0u);
  fs::remove(tree_.at("t/maybe.h"));
  expect_same_in_both(headers, 1, 3, "without it");
}

TEST_F(PrecompiledHeaderTest, AComputedIncludeIsComparedWithItsCreatorsList) {
  write_unit(
      "#define STR2(x) #x\n#define STR(x) STR2(x)\n#define NAME hidden\n#include \"a.h\"\n#include "
      "STR(NAME.h)\n");
  tree_.write("t/a.h", "#define OTHER 1\n");
  tree_.write("t/hidden.h", "#define VALUE 3\n");
  PrecompiledHeaders headers(eager());
  expect_same_in_both(headers, 1, 2, "hidden");
  EXPECT_EQ(headers.counts().created, 0u) << "it read what its name does not cover";
  tree_.write("t/scale.toml", small_manifest("scale", "extra_includes = [\"hidden.h\"]\n"));
  expect_same_in_both(headers, 1, 3, "named: publishable with and without");
  EXPECT_EQ(headers.counts().used, 2u);
}

TEST_F(PrecompiledHeaderTest, AnErrorOfTheSourceSaysTheSameWithAndWithout) {
  write_unit("#include \"a.h\"\n", "static_assert(N < 4, \"too large\"); out[i] = T(N + VALUE);");
  tree_.write("t/a.h", "#define VALUE 1\n");
  PrecompiledHeaders headers(eager());
  const auto log_of = [&](PrecompiledHeaders* with, int n) -> std::string {
    try {
      compile_in(with ? a_ : plain_, made(n), with);
    } catch (const CompileError& error) {
      return error.what();
    }
    return "compiled";
  };
  EXPECT_EQ(log_of(&headers, 5), log_of(nullptr, 5)) << "while creating";
  EXPECT_NE(log_of(nullptr, 5).find("too large"), std::string::npos);
  expect_same_in_both(headers, 1, 3, "an error is no fault of the header");
  EXPECT_EQ(headers.counts().used, 2u);
  EXPECT_EQ(log_of(&headers, 5), log_of(nullptr, 5)) << "while using";
  expect_same_in_both(headers, 1, 3, "afterwards");
  EXPECT_EQ(headers.counts().used, 5u);
  EXPECT_EQ(headers.counts().off, 0u);
}

TEST_F(PrecompiledHeaderTest, DiagnosticsOfHeadersAreNotHidden) {
  write_unit("#include \"a.h\"\n");
  tree_.write("t/a.h", "#define VALUE 1\n#warning old header\n");
  PrecompiledHeaders headers(eager());
  expect_same_in_both(headers, 1, 3, "warning");
  EXPECT_NE(compile_in(a_, made(1), &headers).facts.log.find("old header"), std::string::npos);
  EXPECT_EQ(headers.counts().used, 0u);
}

}  // namespace
}  // namespace kiln::testing
