// `kiln run --check` on a GPU: it counts wrong integers, and accepts right ones.
#include "tools/on_gpu.hpp"

namespace kiln::test {
namespace {

class RunIds : public OnGpu<KilnCompiler> {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    write(
        "templates/ids.cu",
        "template <int WRONG> __global__ void ids(int* out, int n) {\n"
        "  const int i = blockIdx.x * 32 + threadIdx.x;\n  if (i < n) out[i] = i < WRONG ? i + 7 : i;\n}\n");
    write("templates/ids.reference.cu",
          "__global__ void ids_reference(double* out, int n) {\n"
          "  const int i = blockIdx.x * 32 + threadIdx.x;\n  if (i < n) out[i] = i;\n}\n");
    const std::string launch = "grid = [\"ceil_div(n, 32)\"]\nblock = [\"32\"]\n";
    write("templates/ids.toml",
          "format = 1\n[template]\nname = \"ids\"\nsource = \"ids.cu\"\ninstantiate = \"ids<{WRONG}>\"\n"
          "[param.WRONG]\nkind = \"int\"\nrange = [0, 9]\ndefault = 0\n"
          "[[arg]]\nname = \"out\"\ntype = \"ptr<i32>\"\naccess = \"write\"\nshape = [\"n\"]\n"
          "[[arg]]\nname = \"n\"\ntype = \"i32\"\nvalue = 1000\n[launch]\n" +
              launch + "[reference]\nsource = \"ids.reference.cu\"\ninstantiate = \"ids_reference\"\n" +
              launch);
  }
};

TEST_F(RunIds, AreExactOrCounted) {
  const Environment real{{"KILN_LIBCUDA", "libcuda.so.1"}};
  const Finished right = kiln({"run", "ids", "n=1,31,1000", "--check", "--json"}, real);
  EXPECT_EQ(right.status, 0) << right.err;
  for (const auto& size : right.json().at("sizes"))
    EXPECT_EQ(size.at("check")[0].at("differing"), 0) << size.dump();
  const Finished wrong = kiln({"run", "ids", "WRONG=3", "--check"}, real);
  EXPECT_EQ(wrong.status, 1);
  EXPECT_NE(wrong.out.find("WRONG  out at n=1000: 3 of 1000 elements differ, by up to 7\n"),
            std::string::npos)
      << wrong.out;
}

}  // namespace
}  // namespace kiln::test
