// The stubs that stand for host libraries with host_code = "cut" (templates/stubs).
#include <algorithm>
#include <filesystem>

#include "support/places.hpp"
#include "tools/kiln_process.hpp"

namespace kiln::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::vector<std::string> headers_below(const std::string& folder) {
  const fs::path root = std::string(places::kSourceDirectory) + "/templates/" + folder;
  std::vector<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.is_regular_file() && entry.path().extension() != ".md")
      out.push_back(fs::relative(entry.path(), root).string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// A kernel that uses PyTorch's types in many ways.
const char* const kUses = R"(
template <class scalar_t>
__global__ void uses(torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> a,
                     const at::PackedTensorAccessor64<float, 1> b, c10::complex<float> c, c10::complex<double> d,
                     at::BFloat16 bf, c10::Float8_e4m3fn q, c10::Float8_e5m2 r, float* out) {
  using acc_t = at::acc_type<scalar_t, true>;
  const int i = threadIdx.x;
  acc_t sum = 0;
  if (i < a.size(0) && a.stride(1) == 1) {
    auto row = a[i];
    for (int j = 0; j < row.size(0); ++j) sum += static_cast<acc_t>(row[j]);
    a[i][0] = static_cast<scalar_t>(sum);
    a[i][1] = sum;
    row[2] += scalar_t(1);
  }
  scalar_t h = a[0][0], g = scalar_t(2.5f);
  h = h + g, h = h - g, h = h * g, h = h / g, h = -h;
  h += g, h -= g, h *= g, h /= g;
  h = h + 1, h = 2 * h, h = h - 1l, h = h / 3u;
  float f = h + 1.0f;
  f += 2.0f * h;
  double wide = h * 2.0;
  wide += 2.0 / h;
  if (h > g || h < 0 || h >= 1.0f || 2.0 <= h || h == g || h != scalar_t(0)) f += 1;
  const bool any = h;
  f += static_cast<float>(any ? h : g) + (h > g ? float(h) : float(g));
  f += std::numeric_limits<scalar_t>::max() + std::numeric_limits<scalar_t>::lowest();
  const __half native = static_cast<c10::Half>(f);
  bf = bf * bf + at::BFloat16(f);
  const __nv_bfloat16 native_bf = bf;
  c = c * c + c10::complex<float>(1, 2) - c / c10::complex<float>(3) * 2.0f;
  c += c, c *= c, c -= -c;
  d = d * d;
  q = c10::Float8_e4m3fn(float(q) + float(r));
  out[i] = f + float(wide) + float(native) + float(native_bf) + c.real() + c.imag() + float(d.real()) + float(q) +
           b[i] + (c == c10::complex<float>(1) ? 1.0f : 0.0f) + at::opmath_type<scalar_t>(h);
  TORCH_CHECK(out, "text", 1);
  CUDA_KERNEL_ASSERT(i >= 0);
}
void launch(const at::Tensor& a, torch::Tensor b) {
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(a.scalar_type(), "uses", [&] {
    uses<scalar_t><<<1, 32, 0, at::cuda::getCurrentCUDAStream()>>>(a.packed_accessor32<scalar_t, 2>());
  });
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("launch", &launch); }
)";

/// A kernel with PyTorch's random numbers, and with the names of its interface that is stable.
const char* const kMore = R"(
__global__ void more(at::PhiloxCudaState state, torch::headeronly::HeaderOnlyTensorAccessor<float, 1> a,
                     const torch::headeronly::HeaderOnlyGenericPackedTensorAccessor<float, 2> b,
                     torch::headeronly::complex<float> c, torch::headeronly::ScalarType type,
                     c10::Float8_e8m0fnu scale, torch::headeronly::Float4_e2m1fn_x2 two, uint64_t* out) {
  const auto seeds = at::cuda::philox::unpack(state);
  out[0] = std::get<0>(seeds) + state.offset_intragraph_;
  out[1] = std::get<1>(seeds) + (type == c10::ScalarType::BFloat16 ? 1 : two.val_);
  a[0] = b[0][1] * scale + c.real();
  STD_TORCH_CHECK_NOT_IMPLEMENTED(false, "text");
  STD_CUDA_CHECK(1);
  STD_CUDA_KERNEL_LAUNCH_CHECK();
}
struct Kept {
  torch::stable::Tensor tensor;
};
void launch(const Kept& kept) {
  THO_DISPATCH_SWITCH(kept.tensor.scalar_type(), "more", THO_DISPATCH_CASE(torch::headeronly::ScalarType::Half, [] {}));
}
)";

const std::map<std::string, std::pair<std::string, int>>& sizes_of_more() {
  static const std::map<std::string, std::pair<std::string, int>> kAll = {
      {"PHILOX", {"sizeof(at::PhiloxCudaState)", 32}},
      {"PHILOX_OFFSET", {"offsetof(at::PhiloxCudaState, offset_)", 8}},
      {"PHILOX_CAPTURED", {"offsetof(at::PhiloxCudaState, captured_)", 24}},
      {"TENSOR", {"sizeof(torch::stable::Tensor)", 16}},
      {"E8M0FNU", {"sizeof(c10::Float8_e8m0fnu)", 1}},
      {"E2M1FN_X2", {"sizeof(c10::Float4_e2m1fn_x2)", 1}},
      {"UINT64", {"(int)c10::ScalarType::UInt64", 29}},
      {"TYPE_E8M0FNU", {"(int)c10::ScalarType::Float8_e8m0fnu", 44}},
      {"MAJOR", {"TORCH_VERSION_MAJOR", 2}},
  };
  return kAll;
}

const std::map<std::string, std::pair<std::string, int>>& sizes() {
  static const std::map<std::string, std::pair<std::string, int>> kAll = {
      {"HALF", {"sizeof(c10::Half)", 2}},
      {"HALF_ALIGNMENT", {"alignof(c10::Half)", 2}},
      {"BFLOAT16", {"sizeof(at::BFloat16)", 2}},
      {"BFLOAT16_ALIGNMENT", {"alignof(at::BFloat16)", 2}},
      {"E4M3FN", {"sizeof(c10::Float8_e4m3fn)", 1}},
      {"E5M2", {"sizeof(c10::Float8_e5m2)", 1}},
      {"E4M3FNUZ", {"sizeof(c10::Float8_e4m3fnuz)", 1}},
      {"COMPLEX", {"sizeof(c10::complex<float>)", 8}},
      {"COMPLEX_ALIGNMENT", {"alignof(c10::complex<float>)", 8}},
      {"COMPLEX_DOUBLE", {"sizeof(c10::complex<double>)", 16}},
      {"COMPLEX_DOUBLE_ALIGNMENT", {"alignof(c10::complex<double>)", 16}},
      {"PACKED32_1", {"sizeof(torch::PackedTensorAccessor32<float, 1>)", 16}},
      {"PACKED32_2", {"sizeof(torch::PackedTensorAccessor32<float, 2>)", 24}},
      {"PACKED32_4", {"sizeof(torch::PackedTensorAccessor32<c10::Half, 4, torch::RestrictPtrTraits>)", 40}},
      {"PACKED64_2", {"sizeof(torch::PackedTensorAccessor64<float, 2>)", 40}},
      {"ACCESSOR", {"sizeof(at::TensorAccessor<float, 2>)", 24}},
      {"SCALAR_TYPE", {"sizeof(at::ScalarType)", 1}},
  };
  return kAll;
}

TEST(StubNames, NoStubStandsBehindAShimOfItsName) {
  const std::vector<std::string> stubs = headers_below("stubs"), shims = headers_below("shim");
  EXPECT_GT(stubs.size(), 100u);
  for (const std::string& stub : stubs)
    EXPECT_FALSE(std::binary_search(shims.begin(), shims.end(), stub)) << stub << " is never found";
}

class Stubs : public KilnCompiler {
 protected:
  static std::string exports(const std::map<std::string, std::pair<std::string, int>>& sizes) {
    std::string out = "[export]\n";
    for (const auto& [name, size] : sizes) out += name + " = \"" + size.first + "\"\n";
    return out;
  }
  json compile(const std::string& name, const std::string& instantiate, const std::string& more,
               const std::string& source) {
    fs::create_directories(path("own"));
    write("own/" + name + ".toml", "format = 1\n[template]\nname = \"" + name + "\"\nsource = \"" + name +
                                       ".cu\"\ninstantiate = \"" + instantiate +
                                       "\"\n[compile]\nhost_headers = \"shim\"\nhost_code = \"cut\"\n" +
                                       more + "[launch]\ngrid = [1]\nblock = [32]\n");
    write("own/" + name + ".cu", source);
    const Finished done =
        kiln({"compile", name, "--arch", "sm_90a", "--template-path", path("own"), "--json"});
    EXPECT_EQ(done.status, 0) << done.err << done.out;
    return done.status == 0 ? done.json() : json();
  }
};

TEST_F(Stubs, AllOfThemCompileInOneSource) {
  std::string source;
  for (const std::string& header : headers_below("stubs")) source += "#include <" + header + ">\n";
  source +=
      "__global__ void kernel(float* out, rmm::cuda_stream_view* view, ncclComm_t comm, cublasHandle_t "
      "handle) {\n"
      "  using Reduce = cub::BlockReduce<float, 32>;\n  __shared__ typename Reduce::TempStorage storage;\n"
      "  const float most = Reduce(storage).Reduce(out[threadIdx.x], cub::Max());\n"
      "  out[threadIdx.x] = cub::Sum()(most, cub::Min()(1.0f, most));\n}\n"
      "void launch() {\n  checkCudaErrors(cudaMalloc(nullptr, 1));\n  thrust::device_vector<int> a(4);\n}\n";
  EXPECT_EQ(compile("all", "kernel", "", source).value("outcome", ""), "compiled");
}

TEST_F(Stubs, TypesOfPyTorchHaveItsSizesAndOperators) {
  const std::string full =
      "[[kernel]]\nname = \"full\"\ninstantiate = \"uses<float>\"\n[kernel.launch]\ngrid = [1]\nblock = "
      "[32]\n";
  const json done =
      compile("uses", "uses<at::Half>", full + exports(sizes()),
              "#include <torch/extension.h>\n#include <ATen/cuda/CUDAContext.h>\n" + std::string(kUses));
  ASSERT_TRUE(done.contains("exports"));
  for (const auto& [name, size] : sizes()) EXPECT_EQ(done.at("exports").at(name), size.second) << size.first;
}

TEST_F(Stubs, RandomNumbersAndStableNamesOfPyTorchHaveItsSizes) {
  std::string includes;
  for (const char* header :
       {"ATen/cuda/CUDAGeneratorImpl.h", "ATen/cuda/CUDAGraphsUtils.cuh", "torch/csrc/stable/macros.h",
        "torch/csrc/stable/tensor.h", "torch/headeronly/core/Dispatch.h",
        "torch/headeronly/core/TensorAccessor.h", "torch/headeronly/util/Exception.h",
        "torch/headeronly/util/Float4_e2m1fn_x2.h", "torch/headeronly/util/Float8_e8m0fnu.h",
        "torch/headeronly/util/complex.h", "torch/python.h"})
    includes += "#include <" + std::string(header) + ">\n";
  const json done = compile("more", "more", exports(sizes_of_more()), includes + kMore);
  ASSERT_TRUE(done.contains("exports"));
  for (const auto& [name, size] : sizes_of_more())
    EXPECT_EQ(done.at("exports").at(name), size.second) << size.first;
}

TEST_F(Stubs, AnOlderPyTorchHasASmallerGeneratorState) {
  const json done =
      compile("older", "more",
              "define = { TORCH_VERSION_MINOR = \"9\" }\n[export]\n"
              "PHILOX = \"sizeof(at::PhiloxCudaState)\"\n",
              "#include <ATen/cuda/PhiloxUtils.cuh>\n__global__ void more(at::PhiloxCudaState) {}\n");
  ASSERT_TRUE(done.contains("exports"));
  EXPECT_EQ(done.at("exports").at("PHILOX"), 24);
}

}  // namespace
}  // namespace kiln::test
