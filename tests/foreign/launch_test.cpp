// Entry points, globals, constants and structs through the public API, over the fake driver.
#include "runtime/fake_runtime.hpp"
#include "support/places.hpp"

namespace kiln::testing {
namespace {

class ForeignLaunch : public FakeRuntime {
 protected:
  Service service() const {
    Options o = options();
    o.template_path = std::string(places::kSourceDirectory) + "/tests/fixtures/foreign";
    return Service(o);
  }
  template <class T, int D>
  struct Params {
    const T* in;
    T* out;
    int n;
    T weight[D];
  };
};

TEST_F(ForeignLaunch, ExportsAreInTheGeometryAndCanBeAskedFor) {
  Service s = service();
  const Kernel k = s.open("state").get({{"T", "f32"}, {"D", 8}});
  EXPECT_EQ(k.constant("PARAMS"), static_cast<std::int64_t>(sizeof(Params<float, 8>)));
  EXPECT_EQ(k.constant("MOST"), 77);
  k(nullptr, Params<float, 8>{}, 300);
  EXPECT_EQ(last_launch().shared_bytes, k.constant("STORAGE"));
  EXPECT_EQ(last_launch().grid[0], 3u);
  expect_error(Errc::requirement, {"n = 77001 is more than 1000 x 77"},
               [&] { k(nullptr, Params<float, 8>{}, 77001); });
  expect_error(Errc::invalid_argument, {"no [export] called 'LEAST'", "it has: STORAGE, PARAMS, MOST"},
               [&] { k.constant("LEAST"); });
}

TEST_F(ForeignLaunch, AStructTakesTheSizeOfTheImage) {
  Service s = service();
  const Kernel k = s.open("state").get({{"T", "f64"}, {"D", 8}});
  Params<double, 8> params{};
  params.weight[7] = 0.25;
  k(nullptr, params, 128);
  EXPECT_EQ((argument<Params<double, 8>>(last_launch(), 0).weight[7]), 0.25);
  expect_error(Errc::invalid_argument,
               {"argument 0 'params' is a struct of 56 bytes, expected struct of 88 bytes"},
               [&] { k(nullptr, Params<float, 8>{}, 128); });
}

TEST_F(ForeignLaunch, EntryPointsShareOneImageAndLaunchThemselves) {
  Service s = service();
  const Kernel k = s.open("state").get({{"T", "f32"}, {"D", 4}});
  const Kernel read = k.entry("read_total");
  EXPECT_EQ(kiln_fake_live("library"), 1u);
  read(nullptr, device_pointer<unsigned long long>());
  EXPECT_NE(std::string(last_launch().kernel).find("read_total"), std::string::npos);
  EXPECT_EQ(last_launch().block[0], 1u);
  EXPECT_NE(std::string(read.info().specialization).find("kernel 'read_total'"), std::string::npos);
  EXPECT_EQ(read.info().argument_count, 1u);
  EXPECT_EQ(driver_calls([&] { k.entry("read_total"); }), 0u);
  expect_error(Errc::invalid_argument, {"no [[kernel]] called 'write_total'", "read_total"},
               [&] { k.entry("write_total"); });
  expect_error(Errc::invalid_argument, {"kernel 'read_total'", "launched with 0 arguments"},
               [&] { read(nullptr); });
}

TEST_F(ForeignLaunch, GlobalsHaveAnAddressInEachContextAndTheirSize) {
  Service s = service();
  const Kernel one = s.open("state").get({{"T", "f32"}, {"D", 4}});
  const Global bias = one.global("bias");
  EXPECT_EQ(bias.bytes, 16u);
  const float values[4] = {1, 2, 3, 4};
  EXPECT_EQ(cu().cuMemcpyHtoD(bias.address.address, values, sizeof values), 0);
  use(1);
  const Kernel other = s.open("state").get({{"T", "f32"}, {"D", 4}});
  EXPECT_NE(other.global("bias").address.address, bias.address.address);
  EXPECT_EQ(other.global("total").bytes, 8u);
  expect_error(Errc::invalid_argument, {"no [[global]] called 'table'", "it has: bias, total"},
               [&] { other.global("table"); });
}

TEST_F(ForeignLaunch, AVariableThatTheDriverDoesNotFindFailsTheGet) {
  Service s = service();
  kiln_fake_fail("cuLibraryGetGlobal", 500, 0, 1);
  expect_error(Errc::driver, {"cuLibraryGetGlobal", "variable '"}, [&] {
    s.open("state").get({{"T", "f32"}, {"D", 4}});
  });
  EXPECT_EQ(kiln_fake_live("library"), 0u) << "nothing stays loaded";
  EXPECT_NO_THROW(s.open("state").get({{"T", "f32"}, {"D", 4}}));
}

TEST_F(ForeignLaunch, WithoutTheShorthandTheFirstKernelIsTheMainOne) {
  Service s = service();
  const Kernel k = s.open("types").get({{"T", "f32"}, {"OP", "scale"}, {"ROWS", 4}});
  struct Scale {
    float by;
  } op{2};
  k(nullptr, device_pointer(), device_pointer(), op, 8);
  EXPECT_EQ(argument<float>(last_launch(), 2), 2.0f);
  EXPECT_EQ(k.entry("transform").handle(), k.handle());
  k.entry("twice_float")(nullptr, device_pointer<float>());
  k.entry("hidden")(nullptr, device_pointer<int>());
  EXPECT_EQ(k.entry("twice_float").entry("hidden").handle(), k.entry("hidden").handle());
  EXPECT_EQ(k.entry("hidden").entry("transform").handle(), k.handle());
  EXPECT_EQ(k.global("counter").bytes, 4u);
  expect_error(Errc::requirement, {"row_stride = 7 is less than 8 columns"},
               [&] { k(nullptr, device_pointer(), device_pointer(), op, 7); });
}

TEST_F(ForeignLaunch, StructsBeyondFourKilobytesTensorMapsAndHandlesArrive) {
  Service s = service();
  struct Big {
    unsigned char bytes[32700];
  };
  static Big big{};
  big.bytes[32699] = 99;
  const Kernel k = s.open("big_struct").get({{"BYTES", 32700}});
  struct Two {
    short n;
  };
  k(nullptr, device_pointer<unsigned long long>(), big, Two{7});
  EXPECT_EQ(argument<Big>(last_launch(), 1).bytes[32699], 99);
  struct Map {
    alignas(64) unsigned char bytes[128];
  };
  s.open("tma").get({{"ROWS", 16}, {"COLUMNS", 32}})(nullptr, Map{}, device_pointer<float>(), 3, 5);
  EXPECT_EQ(last_launch().grid[1], 5u);
  const unsigned long long texture = 0x123456789abcdef0ull, surface = 5;
  s.open("texture").get()(nullptr, device_pointer<float>(), texture, surface, 10);
  EXPECT_EQ(argument<unsigned long long>(last_launch(), 1), texture);
  expect_error(Errc::invalid_argument, {"argument 1 'from' is a pointer of 8 bytes, expected texture"}, [&] {
    s.open("texture").get()(nullptr, device_pointer<float>(), device_pointer(), surface, 10);
  });
}

TEST_F(ForeignLaunch, ACooperativeGridFillsTheDevice) {
  Service s = service();
  const Kernel k = s.open("cooperative").get();
  k(nullptr, device_pointer<int>(), 1000);
  EXPECT_TRUE(last_launch().cooperative);
  EXPECT_GT(last_launch().grid[0], 0u);
}

/// A template with one kernel, `f`, and this launch.
std::string with_launch(const std::string& launch) {
  return "format = 1\n[template]\nname = \"t\"\nsource = \"t.cu\"\ninstantiate = \"f\"\n[[arg]]\nname = "
         "\"o\"\ntype = "
         "\"ptr<i32>\"\n[runtime]\nn = { value = 1 }\n[launch]\ngrid = [4]\n" +
         launch;
}

TEST_F(ForeignLaunch, AnEntryPointOrAnArchWithMoreNamesThanALaunchHoldsIsRefused) {
  const std::string base = with_launch("block = [32]\n");
  std::string derives, huge =
                           "[[kernel]]\nname = \"huge\"\ninstantiate = \"f\"\n[kernel.launch]\ngrid = "
                           "[1]\nblock = [1]\n[kernel.runtime]\n";
  for (int i = 0; i < 128; ++i) derives += "D" + std::to_string(i) + " = \"1\"\n";
  for (int i = 0; i < 64; ++i) huge += "V" + std::to_string(i) + " = { value = 1 }\n";
  for (int i = 0; i < 64; ++i)
    huge += "[[kernel.arg]]\nname = \"A" + std::to_string(i) + "\"\ntype = \"i32\"\n";
  Service s(options());
  s.add_template(base + huge + "[derive]\n" + derives, "__global__ void f(int* o) { *o = 1; }\n");
  expect_error(Errc::manifest, {"[[kernel]] 'huge' has more than 256 parameters"}, [&] { s.open("t"); });
}

TEST_F(ForeignLaunch, AMacroOfTheSourceDoesNotReachAnExport) {
  Service s(options());
  s.add_template(with_launch("block = [32]\n[export]\nSIZE = \"sizeof(int)\"\n"),
                 "#define V 4\n#define value 5\n__global__ void f(int* o) { *o = V + value; }\n");
  EXPECT_EQ(s.open("t").get().constant("SIZE"), 4);
}

TEST_F(ForeignLaunch, BlocksAndClustersAreThoseThatTheSourceFixes) {
  const std::string required = "__global__ void __block_size__((64, 2, 1)) f(int* o) { *o = 1; }\n",
                    bounded = "__global__ void __launch_bounds__(128) f(int* o) { *o = 1; }\n",
                    clustered = "__global__ void __cluster_dims__(2, 1, 1) f(int* o) { *o = 1; }\n";
  const auto refused = [&](const std::string& source, const std::string& launch, const std::string& part) {
    Service s(options());
    s.add_template(with_launch(launch), source);
    expect_error(Errc::requirement, {part}, [&] { s.open("t").get(); });
  };
  refused(required, "block = [128]\n",
          "block = 128 x 1 x 1, and the kernel was compiled for blocks of 64 x 2 x 1");
  refused(bounded, "block = [129]\n", "129 threads, and the kernel's __launch_bounds__ allow 128");
  refused(clustered, "block = [32]\ncluster = [4]\n",
          "cluster = 4 x 1 x 1, and the kernel was compiled for clusters of 2 x 1 x 1");

  Service s(options());
  s.add_template(with_launch("block = [\"n\"]\n"), bounded);
  const Kernel k = s.open("t").get();
  k(nullptr, device_pointer<int>(), 128);
  expect_error(Errc::requirement, {"129 threads"}, [&] { k(nullptr, device_pointer<int>(), 129); });
  for (const auto& [source, launch] :
       {std::pair(required, "block = [64, 2]\n"), std::pair(clustered, "block = [32]\n"),
        std::pair(clustered, "block = [32]\ncluster = [2]\n")}) {
    Service fits(options());
    fits.add_template(with_launch(launch), source);
    fits.open("t").get()(nullptr, device_pointer<int>(), 1);
  }
}

}  // namespace
}  // namespace kiln::testing
