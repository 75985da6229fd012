// Tensor maps that the launch makes: each encoded field, what is refused, what is kept, structs that hold maps.
#include <thread>

#include "runtime/fake_runtime.hpp"
#include "runtime/launch/argument_toml.hpp"

namespace kiln::testing {
namespace {

constexpr const char* kKernel =
    "struct alignas(64) Map { unsigned char bytes[128]; };\n"
    "template <int N> __global__ void f(int rows, const __grid_constant__ Map map) {\n"
    "  if (rows == map.bytes[threadIdx.x]) __trap();\n}\n";
constexpr const char* kDims = "dims = [\"K\", \"rows\"]\nstrides = [\"pitch\"]\nbox = [64, 128]\n";

class TensorMaps : public FakeRuntime {
 protected:
  /// A kernel that gets (rows, map), and is called with (x, rows, pitch). K = 512.
  static Kernel mapped(Service& service, const std::string& map, const std::string& name = "mapped",
                       const std::string& type = "ptr<bf16>", const std::string& more = "") {
    service.add_template("format = 1\n[template]\nname = \"" + name + "\"\nsource = \"" + name +
                             ".cu\"\ninstantiate = \"f<{K}>\"\narguments = [\"rows\", \"map\"]\n"
                             "[param.K]\nkind = \"int\"\nrange = [1, 100000]\ndefault = 512\n" +
                             argument_toml("x", type, more) + argument_toml("rows", "i32") +
                             argument_toml("pitch", "i64") + "[[tensormap]]\nname = \"map\"\nof = \"x\"\n" +
                             map + "[launch]\ngrid = [\"ceil_div(rows, 64)\"]\nblock = [32]\n",
                         kKernel);
    return service.open(name).get();
  }

  static kiln_fake_tensor_map map_in(const kiln_fake_launch& launch, unsigned index = 1) {
    struct Bytes {
      unsigned char bytes[128];
    };
    const Bytes bytes = argument<Bytes>(launch, index);
    kiln_fake_tensor_map out;
    std::memcpy(&out, bytes.bytes, sizeof out);
    EXPECT_STREQ(out.magic, KILN_FAKE_TENSOR_MAP);
    return out;
  }
  static unsigned long encodes() { return kiln_fake_calls("cuTensorMapEncodeTiled"); }
};

TEST_F(TensorMaps, EachFieldIsEncoded) {
  Service service(options());
  const Kernel k = mapped(service, std::string(kDims) + "swizzle = 128\nl2 = 256\nfill = \"nan\"\n");
  k(nullptr, device_pointer<void>(0x20000), 300, 1024);
  const kiln_fake_launch seen = last_launch();
  EXPECT_EQ(seen.argument_count, 2u);
  EXPECT_EQ(argument<std::int32_t>(seen, 0), 300);
  const kiln_fake_tensor_map map = map_in(seen);
  EXPECT_EQ(map.address, 0x20000u);
  EXPECT_EQ(map.rank, 2);
  EXPECT_EQ(map.data_type, 9);  // BFLOAT16
  EXPECT_EQ(map.dims[0], 512u);
  EXPECT_EQ(map.dims[1], 300u);
  EXPECT_EQ(map.strides[0], 2048u);  // in bytes
  EXPECT_EQ(map.box[0], 64);
  EXPECT_EQ(map.box[1], 128);
  EXPECT_EQ(map.element_strides[0], 1);
  EXPECT_EQ(map.element_strides[1], 1);
  EXPECT_EQ(map.interleave, 0);
  EXPECT_EQ(map.swizzle, 3);
  EXPECT_EQ(map.l2, 3);
  EXPECT_EQ(map.fill, 1);
}

TEST_F(TensorMaps, FiveDimensionsInBytesAndInterleaved) {
  Service service(options());
  const Kernel k = mapped(service,
                          "dims = [16, 5, 6, 7, \"rows\"]\nbyte_strides = [32, 160, 960, \"pitch\"]\n"
                          "box = [8, 1, 2, 3, 4]\nelement_strides = [1, 2, 3, 4, 8]\ndtype = \"u8\"\n"
                          "interleave = 32\nswizzle = 32\nl2 = 64\n");
  k(nullptr, device_pointer<void>(0x20020), 9, 6720);
  const kiln_fake_tensor_map map = map_in(last_launch());
  EXPECT_EQ(map.rank, 5);
  EXPECT_EQ(map.data_type, 0);  // UINT8
  const unsigned long long dims[] = {16, 5, 6, 7, 9}, strides[] = {32, 160, 960, 6720};
  const unsigned short box[] = {8, 1, 2, 3, 4};
  const unsigned char element_strides[] = {1, 2, 3, 4, 8};
  EXPECT_EQ(std::memcmp(map.dims, dims, sizeof dims), 0);
  EXPECT_EQ(std::memcmp(map.strides, strides, sizeof strides), 0);
  EXPECT_EQ(std::memcmp(map.box, box, sizeof box), 0);
  EXPECT_EQ(std::memcmp(map.element_strides, element_strides, sizeof element_strides), 0);
  EXPECT_EQ(map.interleave, 2);
  EXPECT_EQ(map.swizzle, 1);
  EXPECT_EQ(map.l2, 1);
  EXPECT_EQ(map.fill, 0);
}

TEST_F(TensorMaps, EachDtypeHasItsNumber) {
  Service service(options());
  const std::pair<const char*, int> types[] = {
      {"f32", 7}, {"f16", 6},   {"bf16", 9},         {"e4m3", 0},         {"e5m2", 0}, {"ue8m0", 0},
      {"f64", 8}, {"i8", 0},    {"u8", 0},           {"i32", 3},          {"u32", 2},  {"i64", 5},
      {"u64", 4}, {"tf32", 11}, {"f32_flushed", 10}, {"tf32_flushed", 12}};
  for (const auto& [dtype, number] : types) {
    const Kernel k = mapped(service, "dims = [256]\nbox = [16]\ndtype = \"" + std::string(dtype) + "\"\n",
                            "of_" + std::string(dtype));
    k(nullptr, device_pointer<void>(), 1, 1);
    EXPECT_EQ(map_in(last_launch()).data_type, number) << dtype;
  }
}

TEST_F(TensorMaps, AMapIsEncodedOnceForEachArrayAndGeometry) {
  Service service(options());
  const Kernel k = mapped(service, kDims);
  const auto launch = [&](std::uintptr_t address, int rows, std::int64_t pitch) {
    k(nullptr, device_pointer<void>(address), rows, pitch);
    const kiln_fake_tensor_map map = map_in(last_launch());
    EXPECT_EQ(map.address, address);
    EXPECT_EQ(map.dims[1], static_cast<unsigned>(rows));
    EXPECT_EQ(map.strides[0], static_cast<unsigned long long>(pitch) * 2);
  };
  for (int i = 0; i < 3; ++i) launch(0x10000, 100, 512);
  EXPECT_EQ(encodes(), 1u);
  launch(0x10000, 101, 512);
  launch(0x10000, 100, 520);
  launch(0x10010, 100, 512);
  EXPECT_EQ(encodes(), 4u);
  for (int again = 0; again < 2; ++again)
    for (int i = 0; i < 500; ++i) launch(0x100000 + 0x1000 * static_cast<std::uintptr_t>(i), 64, 512);
  EXPECT_LT(encodes(), 4u + 500 + 100);  // nearly all of 500 arrays are kept
  const unsigned long before = encodes();
  for (int i = 0; i < 5000; ++i) launch(0x10000000 + 0x100 * static_cast<std::uintptr_t>(i), 64, 512);
  EXPECT_EQ(encodes(), before + 5000);  // and beyond the largest cache, all are right
}

TEST_F(TensorMaps, ThreadsGetTheirOwnMaps) {
  Service service(options());
  const Kernel k = mapped(service, kDims);
  std::atomic<int> wrong{0};
  kiln_fake_on_launch(
      [](const kiln_fake_launch* launch, void* user) {
        const kiln_fake_tensor_map map = map_in(*launch);
        // Each launch says its address by its rows.
        if (map.address != 0x10000u + 0x100u * map.dims[1] ||
            argument<std::int32_t>(*launch, 0) != static_cast<std::int32_t>(map.dims[1]))
          ++*static_cast<std::atomic<int>*>(user);
      },
      &wrong);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      use(0);
      for (int i = 0; i < 400; ++i) {
        const int rows = 1 + (i * 7 + t * 13) % 90;
        k(nullptr, device_pointer<void>(0x10000u + 0x100u * static_cast<unsigned>(rows)), rows, 512);
      }
    });
  for (std::thread& thread : threads) thread.join();
  kiln_fake_on_launch(nullptr, nullptr);
  EXPECT_EQ(wrong, 0);
}

TEST_F(TensorMaps, AnImpossibleMapIsRefusedByName) {
  Service service(options());
  const Kernel k = mapped(service, std::string(kDims) + "swizzle = 128\n");
  const auto refused = [&](const std::vector<std::string>& parts, std::uintptr_t address, int rows,
                           std::int64_t pitch) {
    const unsigned long before = encodes();
    expect_error(Errc::requirement, parts, [&] { k(nullptr, device_pointer<void>(address), rows, pitch); });
    EXPECT_EQ(encodes(), before);  // the driver was not asked
  };
  refused({"tensor map 'map' of argument 'x'", "0x10008 is not aligned to 16 bytes"}, 0x10008, 64, 512);
  refused({"strides[0] = pitch = 513 makes 1026 bytes, which is no multiple of 16"}, 0x10000, 64, 513);
  refused({"strides[0] = pitch = -8", "is not in 0..2^40 - 1 bytes"}, 0x10000, 64, -8);
  refused({"strides[0] = pitch", "is not in 0..2^40 - 1 bytes"}, 0x10000, 64, std::int64_t{1} << 62);
  expect_error(Errc::invalid_argument, {"argument 'x' is null, and tensor map 'map' is made of it"},
               [&] { k(nullptr, nullptr, 64, 512); });
  k(nullptr, device_pointer<void>(), 0, 512);  // no rows, no blocks, and no map
  EXPECT_EQ(encodes(), 0u);

  const std::tuple<const char*, const char*, const char*> wrong[] = {
      {"rank_0", "dims = [\"rows - 64\"]\nbox = [16]\n", "dims[0] = rows - 64 = 0 is not in 1..4294967296"},
      {"box_0", "dims = [64]\nbox = [\"K\"]\n", "box[0] = K = 512 is not in 1..256"},
      {"box_row", "dims = [64]\nbox = [4]\n", "box[0] = 4 makes rows of 8 bytes, which is no multiple of 16"},
      {"too_wide", "dims = [64]\nbox = [128]\nswizzle = 128\n",
       "box[0] = 128 makes rows of 256 bytes, and swizzle = 128 allows no more than 128"},
      {"swizzle", "dims = [64]\nbox = [16]\nswizzle = 48\n", "swizzle = 48 is not 0, 32, 64 or 128"},
      {"l2", "dims = [64]\nbox = [16]\nl2 = 512\n", "l2 = 512 is not 0, 64, 128 or 256"},
      {"interleave", "dims = [64]\nbox = [16]\ninterleave = 16\n", "interleave = 16 needs 3 dimensions"},
      {"steps", "dims = [64]\nbox = [16]\nelement_strides = [9]\n", "element_strides[0] = 9 is not in 1..8"},
      {"nan", "dims = [64]\nbox = [16]\ndtype = \"u8\"\nfill = \"nan\"\n", "needs floating-point elements"},
  };
  for (const auto& [name, map, why] : wrong) {
    const Kernel broken = mapped(service, map, name);
    expect_error(Errc::requirement, {why}, [&] { broken(nullptr, device_pointer<void>(), 64, 512); });
  }
}

TEST_F(TensorMaps, TheDriversRefusalIsADriverError) {
  Service service(options());
  const Kernel k = mapped(service, kDims);
  kiln_fake_fail("cuTensorMapEncodeTiled", 1, 0, 1);
  expect_error(Errc::driver, {"cuTensorMapEncodeTiled"},
               [&] { k(nullptr, device_pointer<void>(), 64, 512); });
  k(nullptr, device_pointer<void>(), 64, 512);
  EXPECT_EQ(map_in(last_launch()).dims[1], 64u);
}

TEST_F(TensorMaps, AMapOfALeftOutArrayIsZero) {
  Service service(options());
  const Kernel k = mapped(service, kDims, "mapped", "ptr<bf16>", "exists = \"K > 600\"");
  k(nullptr, nullptr, 64, 512);
  struct Bytes {
    unsigned char bytes[128];
  };
  const Bytes none{}, got = argument<Bytes>(last_launch(), 1);
  EXPECT_EQ(std::memcmp(got.bytes, none.bytes, sizeof none.bytes), 0);
}

TEST_F(TensorMaps, ACaptureKeepsTheMap) {
  Service service(options());
  const Kernel k = mapped(service, kDims);
  const CUstream stream = make_stream();
  ASSERT_EQ(cu().cuStreamBeginCapture(stream, 0), 0);
  k(stream, device_pointer<void>(0x30000), 64, 512);
  toolchain::CUgraph graph = nullptr;
  ASSERT_EQ(cu().cuStreamEndCapture(stream, &graph), 0);
  toolchain::CUgraphExec exec = nullptr;
  ASSERT_EQ(cu().cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
  k(nullptr, device_pointer<void>(0x40000), 65, 512);
  ASSERT_EQ(cu().cuGraphLaunch(exec, stream), 0);
  const kiln_fake_tensor_map map = map_in(last_launch());
  EXPECT_EQ(map.address, 0x30000u);
  EXPECT_EQ(map.dims[1], 64u);
  cu().cuGraphExecDestroy(exec);
  cu().cuGraphDestroy(graph);
}

TEST_F(TensorMaps, AStructHoldsMapsAtTheirOffsets) {
  Service service(options());
  const std::string map = "dims = [\"K\"]\nbox = [64]\nin = \"params\"\n";
  service.add_template(
      "format = 1\n[template]\nname = \"held\"\nsource = \"held.cu\"\ninstantiate = \"f<{K}>\"\n"
      "arguments = [\"params\"]\n[compile]\nhost_headers = \"shim\"\n[param.K]\nkind = \"int\"\nrange = [1, "
      "100000]\ndefault = 512\n" +
          argument_toml("a", "ptr<bf16>") + argument_toml("b", "ptr<f32>") +
          argument_toml("params", "struct") +
          "[[tensormap]]\nname = \"map_a\"\nof = \"a\"\noffset = \"PLACE\"\n" + map +
          "[[tensormap]]\nname = \"map_b\"\nof = \"b\"\noffset = \"PLACE + 128\"\n" + map +
          "[export]\nPLACE = \"offsetof(Params, a)\"\n[launch]\ngrid = [1]\nblock = [32]\n",
      "#include <cstddef>\n"
      "struct alignas(64) Map { unsigned char bytes[128]; };\n"
      "struct Params { int n; Map a, b; int last; };\n"
      "template <int N> __global__ void f(const __grid_constant__ Params p) { if (p.n == p.a.bytes[p.last]) "
      "__trap(); }\n");
  const Kernel k = service.open("held").get();
  struct alignas(64) Params {
    int n = 7;
    alignas(64) unsigned char a[128], b[128];
    int last = 9;
  } params;
  std::memset(params.a, 0xee, sizeof params.a);
  k(nullptr, device_pointer<void>(0x50000), device_pointer<void>(0x60000), params);
  const Params seen = argument<Params>(last_launch(), 0);
  kiln_fake_tensor_map a, b;
  std::memcpy(&a, seen.a, sizeof a), std::memcpy(&b, seen.b, sizeof b);
  EXPECT_EQ(seen.n, 7);
  EXPECT_EQ(seen.last, 9);
  EXPECT_EQ(a.address, 0x50000u);
  EXPECT_EQ(a.data_type, 9);
  EXPECT_EQ(b.address, 0x60000u);
  EXPECT_EQ(b.data_type, 7);
  EXPECT_EQ(params.a[0], 0xee);  // the caller's struct is as it was
}

TEST_F(TensorMaps, AStructWithoutRoomIsRefusedWhenTheKernelIsLoaded) {
  Service service(options());
  service.add_template(
      "format = 1\n[template]\nname = \"tight\"\nsource = \"tight.cu\"\ninstantiate = \"f<{N}>\"\n"
      "[param.N]\nkind = \"int\"\nrange = [1, 100]\ndefault = 1\n" +
          argument_toml("a", "ptr<bf16>") + argument_toml("params", "struct") +
          "[[tensormap]]\nname = \"map\"\nof = \"a\"\ndims = [64]\nbox = [64]\nin = \"params\"\noffset = 64\n"
          "[launch]\ngrid = [1]\nblock = [32]\n",
      "struct alignas(64) P { unsigned char bytes[128]; };\n"
      "template <int N> __global__ void f(const void* a, const __grid_constant__ P p) { if (!a && "
      "p.bytes[3]) __trap(); }\n");
  expect_error(Errc::requirement, {"tensor map 'map': offset = 64", "must be a multiple of 64", "'params'"},
               [&] { service.open("tight").get(); });
}

TEST_F(TensorMaps, MapsOfAStructMustNotOverlap) {
  Service service(options());
  const std::string map = "of = \"a\"\ndims = [64]\nbox = [64]\nin = \"params\"\noffset = 64\n";
  service.add_template(
      "format = 1\n[template]\nname = \"twice\"\nsource = \"twice.cu\"\ninstantiate = \"f<{N}>\"\n"
      "[param.N]\nkind = \"int\"\nrange = [1, 100]\ndefault = 1\n" +
          argument_toml("a", "ptr<bf16>") + argument_toml("params", "struct") +
          "[[tensormap]]\nname = \"one\"\n" + map + "[[tensormap]]\nname = \"two\"\n" + map +
          "[launch]\ngrid = [1]\nblock = [32]\n",
      "struct alignas(64) P { unsigned char bytes[256]; };\n"
      "template <int N> __global__ void f(const void* a, const __grid_constant__ P p) { if (!a && "
      "p.bytes[3]) "
      "__trap(); }\n");
  expect_error(Errc::requirement, {"tensor maps 'one' and 'two' overlap in 'params'"},
               [&] { service.open("twice").get(); });
}

TEST_F(TensorMaps, TheKernelsArgumentsAreCompared) {
  Service service(options());
  service.add_template(
      "format = 1\n[template]\nname = \"swapped\"\nsource = \"swapped.cu\"\ninstantiate = \"f<{N}>\"\n"
      "arguments = [\"map\", \"rows\"]\n[param.N]\nkind = \"int\"\nrange = [1, 100]\ndefault = 1\n" +
          argument_toml("x", "ptr<bf16>") + argument_toml("rows", "i32") +
          "[[tensormap]]\nname = \"map\"\nof = \"x\"\ndims = [64]\nbox = [64]\n"
          "[launch]\ngrid = [1]\nblock = [32]\n",
      kKernel);
  expect_error(Errc::manifest, {"argument 0 is the tensor map 'map' of 128 bytes", "has 4 in the kernel"},
               [&] { service.open("swapped").get(); });
}

TEST_F(TensorMaps, ConstantsArePassedBesideTheCallsArguments) {
  Service service(options());
  service.add_template(
      "format = 1\n[template]\nname = \"constants\"\ninstantiate = \"g<{K}>\"\n"
      "arguments = [{ null = true }, \"rows\", { u32 = \"K * 2\" }, { i32 = \"rows - K\" }, { f32 = 0.5 }, "
      "{ f64 = \"K\" }, { u64 = \"rows - 600\" }]\n"
      "[param.K]\nkind = \"int\"\nrange = [1, 100000]\ndefault = 512\n" +
          argument_toml("rows", "i32") + "[launch]\ngrid = [1]\nblock = [32]\n",
      "template <int K> __global__ void g(void*, int, unsigned, int, float, double, unsigned long long) "
      "{}\n");
  const Kernel k = service.open("constants").get();
  k(nullptr, 700);
  const kiln_fake_launch seen = last_launch();
  EXPECT_EQ(argument<void*>(seen, 0), nullptr);
  EXPECT_EQ(argument<std::int32_t>(seen, 1), 700);
  EXPECT_EQ(argument<std::uint32_t>(seen, 2), 1024u);
  EXPECT_EQ(argument<std::int32_t>(seen, 3), 188);
  EXPECT_EQ(argument<float>(seen, 4), 0.5f);
  EXPECT_EQ(argument<double>(seen, 5), 512.0);
  EXPECT_EQ(argument<std::uint64_t>(seen, 6), 100u);
  expect_error(Errc::requirement, {"constants K=512", "the kernel's constant 'u64 rows - 600' = -1"},
               [&] { k(nullptr, 599); });
}

TEST_F(TensorMaps, AConstantOfAnotherSizeThanTheKernelsIsAnError) {
  Service service(options());
  service.add_template(
      "format = 1\n[template]\nname = \"wide\"\ninstantiate = \"g<{K}>\"\n"
      "arguments = [\"rows\", { u32 = 1 }]\n"
      "[param.K]\nkind = \"int\"\nrange = [1, 9]\ndefault = 1\n" +
          argument_toml("rows", "i32") + "[launch]\ngrid = [1]\nblock = [32]\n",
      "template <int K> __global__ void g(int, unsigned long long) {}\n");
  expect_error(Errc::manifest, {"argument 1 is the constant 'u32 1' of 4 bytes", "has 8 in the kernel"},
               [&] { service.open("wide").get(); });
}

}  // namespace
}  // namespace kiln::testing
