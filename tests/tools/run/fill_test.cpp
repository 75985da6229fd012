// The generated inputs of `kiln run` on the fake driver. The tests check
// launches and refusals, not the results of a GPU.
#include "support/places.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

class RunFill : public KilnCompiler {
 protected:
  /// Writes a template `pages` over index arrays. `fill` is the fill of `index`.
  void describe(const std::string& fill, const std::string& dtype = "i32", const std::string& reference = "",
                const std::string& more = "") const {
    write("templates/pages.cu",
          "namespace ns {\n"
          "template <class T> __global__ void pages(T* index, float* out, int n) { out[0] = index[n - 1]; }\n"
          "template <class T> __global__ void good(T* out, long long n, unsigned long long seed) { out[0] = "
          "seed; }\n"
          "template <class T> __global__ void wrong(T* out, int n) { out[0] = n; }\n}\n");
    write(
        "templates/pages.reference.cu",
        "namespace ns { namespace reference {\n"
        "template <class T> __global__ void pages(T* index, double* out, int n) { out[0] = index[n - 1]; }\n"
        "template <class T> __global__ void only_here(T* out, long long n, unsigned long long seed) { out[0] "
        "= seed; }\n"
        "} }\n");
    write(
        "templates/pages.toml",
        "format = 1\n[template]\nname = \"pages\"\nsource = \"pages.cu\"\ninstantiate = \"ns::pages<{T}>\"\n"
        "[param.T]\nkind = \"dtype\"\nvalues = [\"i32\", \"f32\"]\nspelling = \"cuda\"\ndefault = \"" +
            dtype +
            "\"\n"
            "[[arg]]\nname = \"index\"\ntype = \"ptr<T>\"\nshape = [\"n\"]\nfill = \"" +
            fill +
            "\"\n"
            "[[arg]]\nname = \"out\"\ntype = \"ptr<f32>\"\naccess = \"write\"\nshape = [\"1\"]\n"
            "[[arg]]\nname = \"n\"\ntype = \"i32\"\nvalue = 600\n"
            "[launch]\ngrid = [\"1\"]\nblock = [\"1\"]\n" +
            reference + more);
  }
  Finished run(const Arguments& more = {}) {
    Arguments words{"run", "pages", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return kiln(words, {{"KILN_LIBCUDA", places::kFakeCuda}});
  }
  static constexpr const char* kReference =
      "[reference]\nsource = \"pages.reference.cu\"\ninstantiate = \"ns::reference::pages<{T}>\"\ngrid = "
      "[\"1\"]\n"
      "block = [\"1\"]\n";
};

TEST_F(RunFill, EachKindIsGenerated) {
  for (const char* fill :
       {"permutation", "indptr(n * 3)", "int(0, n - 1)", "int(0, 1 << 30)", "const(3)", "ns::good<{T}>"}) {
    describe(fill);
    const Finished r = run();
    EXPECT_EQ(r.status, 0) << fill << r.err;
  }
}

TEST_F(RunFill, AKernelComesFromTheReferencesSourceWhereThereIsOne) {
  describe("ns::reference::only_here<{T}>", "i32", kReference);
  EXPECT_EQ(run().status, 0);
  describe("ns::good<{T}>", "i32", kReference);
  const Finished r = run();
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("pages@reference"), std::string::npos) << r.err;
}

TEST_F(RunFill, AKernelWithOtherArgumentsIsRefused) {
  describe("ns::wrong<{T}>");
  const Finished r = run();
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(
      r.err.find("fill 'ns::wrong<int>' of argument 'index' must take (T* out, long long n, unsigned long "
                 "long seed)"),
      std::string::npos)
      << r.err;
}

TEST_F(RunFill, WhatDoesNotFitTheCallIsRefused) {
  describe("permutation", "f32");
  Finished r = run();
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("'index' needs elements of type i32, u32, i64 or u64, and they are f32"),
            std::string::npos)
      << r.err;
  describe("indptr(n)");
  r = run({"n=1"});
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("indptr(1) of 1 entries"), std::string::npos) << r.err;
  describe("int(n, 10)");
  r = run();
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("int(600, 10) is empty"), std::string::npos) << r.err;
  describe("int(0, 1 << 40)");
  r = run();
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("does not fit i32"), std::string::npos) << r.err;
}

TEST_F(RunFill, WithoutAReferenceACheckSaysSo) {
  describe("permutation");
  const Finished r = run({"--check"});
  EXPECT_EQ(r.status, 3) << r.err;
  EXPECT_TRUE(r.json()["check"].is_null());
}

TEST_F(RunFill, StrictLooksAtTheKernelsLimits) {
  describe("permutation", "i32", "", "[limits]\ncompile_seconds = 0\n");
  const Finished plain = run();
  EXPECT_EQ(plain.status, 0) << plain.err;
  EXPECT_EQ(plain.json()["limits_broken"][0]["name"], "compile_seconds");
  const Finished strict = run({"--strict"});
  EXPECT_EQ(strict.status, 1);
  EXPECT_EQ(strict.json()["error"]["code"], "limits_broken");
  EXPECT_EQ(strict.json()["outcome"], "disk") << "found, and refused all the same";
}

}  // namespace
}  // namespace kiln::test
