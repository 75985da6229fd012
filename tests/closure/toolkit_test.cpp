// The closure with a toolkit, whose headers are no part of the specialisation.
#include "tests/closure/closure_tree.hpp"

namespace kiln::source {
namespace {

TEST(Closure, ToolkitHeadersAreNoEdges) {
  ClosureTree t;
  t.project({"p"});
  t.toolkit({"t"});
  t.write("p/a.h", "#include <cuda.h>\n");
  t.write("t/cuda.h", "#include \"inner.h\"\n");
  t.write("t/inner.h", "");
  const Closure c = t.scan("#include \"a.h\"\n#include <cuda.h>\n");
  EXPECT_EQ(edges(c), Strings{" \"a.h\" -> .k0/a.h"});
  EXPECT_EQ(symbolic(c), (Strings{".k0/a.h", ".t0/cuda.h", ".t0/inner.h"}));
  EXPECT_EQ(roots(c), (Strings{".k0 p", ".t0 t"}));
  EXPECT_TRUE(c.files[1].toolkit && !c.files[1].via_toolkit);
  EXPECT_TRUE(c.files[2].toolkit && c.files[2].via_toolkit);
}

TEST(Closure, WithoutTheToolkitTheEdgesAreTheSame) {
  ClosureTree with, without;
  for (ClosureTree* t : {&with, &without}) {
    t->project({"p"});
    t->write("p/a.h", "#include <cuda.h>\nint a;\n");
  }
  with.toolkit({"t"});
  with.write("t/cuda.h", "");
  const std::string source = "#include \"a.h\"\n#include <cuda.h>\n";
  EXPECT_EQ(identity(with.scan(source)), identity(without.scan(source)));
  EXPECT_EQ(without.scan(source).missing, Strings{"<cuda.h>"});
  EXPECT_TRUE(with.scan(source).missing.empty());
}

TEST(Closure, AToolkitDirectoryListedAsProjectIsToolkit) {
  ClosureTree t;
  t.toolkit({"t"});
  t.write("t/cuda.h", "");
  t.link(t.path("t"), "alias");
  t.search.project = {t.path("alias"), t.path("t"), t.path("t/."), t.path("missing")};
  const Closure c = t.scan("#include <cuda.h>\n");
  EXPECT_TRUE(c.edges.empty());
  EXPECT_EQ(symbolic(c), Strings{".t0/cuda.h"});
  EXPECT_EQ(roots(c), Strings{".t0 t"});
}

TEST(Closure, AProjectFileThatShadowsAToolkitNameIsTheProjects) {
  ClosureTree t;
  t.project({"p"});
  t.toolkit({"t"});
  t.write("p/cuda_fp16.h", "int mine;\n");
  t.write("t/cuda_fp16.h", "int theirs;\n");
  t.write("t/cuda_bf16.h", "#include <cuda_fp16.h>\n");
  const Closure direct = t.scan("#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n");
  EXPECT_EQ(edges(direct), Strings{" <cuda_fp16.h> -> .k0/cuda_fp16.h"});
  EXPECT_FALSE(file_of(direct, ".k0/cuda_fp16.h").via_toolkit);
  const Closure hidden = t.scan("#include <cuda_bf16.h>\n");
  EXPECT_TRUE(hidden.edges.empty());
  EXPECT_TRUE(file_of(hidden, ".k0/cuda_fp16.h").via_toolkit);
  EXPECT_FALSE(file_of(hidden, ".k0/cuda_fp16.h").toolkit);
}

TEST(Closure, WhatAProjectFileReachedThroughTheToolkitIncludesIsToo) {
  ClosureTree t;
  t.project({"p"});
  t.toolkit({"t"});
  t.write("p/config.h", "#include \"more.h\"\n");
  t.write("p/more.h", "");
  t.write("t/cub.h", "#include <config.h>\n");
  const Closure c = t.scan("#include <cub.h>\n");
  EXPECT_EQ(symbolic(c), (Strings{".t0/cub.h", ".k0/config.h", ".k0/more.h"}));
  EXPECT_TRUE(c.files[1].via_toolkit && c.files[2].via_toolkit);
  EXPECT_TRUE(c.edges.empty());
}

TEST(Closure, IncludeNextMayTakeAnyDirectory) {
  ClosureTree t;
  t.project({"p", "q"});
  t.toolkit({"t"});
  t.write("p/x.h", "#include_next <x.h>\n");
  t.write("q/x.h", "int q;\n");
  t.write("t/x.h", "int t;\n");
  const Closure c = t.scan("#include <x.h>\n");
  EXPECT_EQ(symbolic(c), (Strings{".k0/x.h", ".k1/x.h", ".t0/x.h"}));
  EXPECT_EQ(edges(c), (Strings{" <x.h> -> .k0/x.h", ".k0/x.h <x.h> -> .k0/x.h", ".k0/x.h <x.h> -> .k1/x.h"}));
}

TEST(Closure, AComputedIncludeOfTheToolkitIsToldApart) {
  ClosureTree t;
  t.toolkit({"t"});
  t.write("t/a.h", "#define HDR <b.h>\n#include HDR\n");
  t.write("t/b.h", "");
  const Closure c = t.scan("#include <a.h>\n");
  EXPECT_FALSE(c.computed);
  EXPECT_TRUE(c.toolkit_computed);
  EXPECT_EQ(symbolic(c), (Strings{".t0/a.h", ".t0/b.h"}));
}

/// Thrust does this, and CUB's block reduction includes it: the compiler reads seven
/// files that no #include names.
TEST(Closure, NamesPutTogetherFromMacrosAreFollowed) {
  ClosureTree t;
  t.toolkit({"t"});
  t.write("t/host.h", "#include <config.h>\n#define HDR <__ROOT/detail/x.h>\n#include HDR\n");
  t.write("t/config.h",
          "#if A\n#define __NS cpp\n#else\n#define __NS omp\n#endif\n#define __ROOT thrust/system/__NS\n");
  t.write("t/thrust/system/cpp/detail/x.h", "#include \"y.h\"\n");
  t.write("t/thrust/system/cpp/detail/y.h", "");
  t.write("t/thrust/system/omp/detail/x.h", "");
  const Closure c = t.scan("#include <host.h>\n");
  EXPECT_EQ(symbolic(c), (Strings{".t0/host.h", ".t0/config.h", ".t0/thrust/system/cpp/detail/x.h",
                                  ".t0/thrust/system/omp/detail/x.h", ".t0/thrust/system/cpp/detail/y.h"}));
  EXPECT_TRUE(c.missing.empty());
}

TEST(Closure, NamesPutTogetherInTheProjectAreEdges) {
  ClosureTree t;
  t.project({"p"});
  t.write("p/impl/sm90/gemm.h", "");
  const Closure c =
      t.scan("#define DIR impl/sm90\n#define HDR <DIR/gemm.h>\n#include HDR\n#define OTHER <nowhere.h>\n");
  EXPECT_TRUE(c.computed);
  EXPECT_EQ(edges(c), Strings{" <DIR/gemm.h> -> .k0/impl/sm90/gemm.h"});
  EXPECT_EQ(c.missing, Strings{"<nowhere.h>"});
}

TEST(Closure, MacrosThatNameThemselvesEnd) {
  ClosureTree t;
  t.project({"p"});
  std::string source = "#define A A/A\n#define B C\n#define C B\n#define H <A/B/x.h>\n#include H\n";
  for (int i = 0; i < 30; ++i) source += "#define B v" + std::to_string(i) + "/B\n";
  EXPECT_TRUE(t.scan(source).files.empty());
}

}  // namespace
}  // namespace kiln::source
