// Launch arguments: the value and the width that reach each argument, and calls that are
// refused before the driver.
#include <optional>

#include "runtime/fake_runtime.hpp"
#include "runtime/launch/argument_toml.hpp"

namespace kiln::testing {
namespace {

struct Twelve {
  int a[3];
};
struct Sixteen {
  int a[4];
};

class Launch : public FakeRuntime {
 protected:
  Kernel rms_norm() { return service().open("rms_norm").get(Dtype::bf16, 4096); }
  /// A kernel that has an argument of every type.
  Kernel probe() {
    add(service(), "probe",
        argument_toml("p", "ptr<f32>") + argument_toml("i", "i32") + argument_toml("l", "i64") +
            argument_toml("u", "u32") + argument_toml("v", "u64") + argument_toml("f", "f32") +
            argument_toml("d", "f64") + argument_toml("s", "struct<12>") + kOneBlock,
        "struct Twelve { int a[3]; };\ntemplate <int N> __global__ void f(float* p, int i, long long l, "
        "unsigned u, unsigned long long v, "
        "float x, double d, Twelve s) { *p = i + l + u + v + x + d + s.a[0]; }");
    return service().open("probe").get();
  }
  /// A kernel with trailing optional arguments of each kind: `doubled` defaults to an expression of another
  /// argument, `early` to one of a later argument.
  Kernel optional() {
    add(service(), "optional",
        argument_toml("out", "ptr<f32>") + argument_toml("n", "i32") +
            argument_toml("bias", "ptr<f32>", "optional = true") +
            argument_toml("doubled", "i64", "optional = true\nvalue = \"n * 2\"") +
            argument_toml("scale", "f32", "optional = true\nvalue = 1.5") +
            argument_toml("early", "i32", "optional = true\nvalue = \"late + 1\"") +
            argument_toml("late", "i32", "optional = true\nvalue = 7") + kOneBlock,
        "template <int N> __global__ void f(float* out, int n, const float* bias, long long doubled, float "
        "scale, int early, int late) "
        "{ *out = n; }");
    return service().open("optional").get();
  }
  Service& service() {
    if (!service_) service_.emplace(options());
    return *service_;
  }
  void TearDown() override {
    service_.reset();
    FakeRuntime::TearDown();
  }
  std::optional<Service> service_;
};

TEST_F(Launch, PutsEachValueIntoItsSlotInTheDeclaredWidth) {
  const CUstream stream = make_stream();
  RmsNormCall call;
  call.rows = 5, call.stride_x = 5000, call.stride_out = -4096 + 8192 + 8, call.eps = 1e-5f;
  call(rms_norm(), stream);
  const kiln_fake_launch seen = last_launch();
  EXPECT_NE(std::strstr(seen.kernel, "rms_norm"), nullptr);
  EXPECT_EQ(seen.stream, stream);
  ASSERT_EQ(seen.argument_count, 10u);
  EXPECT_EQ(argument<void*>(seen, 0), call.out);
  EXPECT_EQ(argument<const void*>(seen, 1), call.x);
  EXPECT_EQ(argument<const void*>(seen, 2), call.w);
  EXPECT_EQ(argument<std::int32_t>(seen, 3), 5);
  EXPECT_EQ(argument<std::int64_t>(seen, 4), 5000);
  EXPECT_EQ(argument<std::int64_t>(seen, 5), 4104);
  EXPECT_EQ(argument<float>(seen, 6), 1e-5f);
  EXPECT_EQ(argument<void*>(seen, 7), nullptr) << "omitted residual";
  EXPECT_EQ(argument<std::int64_t>(seen, 8), 4096) << "omitted stride_residual: its value, H";
  EXPECT_EQ(argument<void*>(seen, 9), nullptr) << "omitted scale";
}

TEST_F(Launch, ConvertsWhatFits) {
  const Kernel k = probe();
  k(nullptr, device_pointer<float>(), std::size_t{2147483647}, 42, std::uint64_t{4294967295}, short{7}, 0.5,
    1.25f, Twelve{{1, 2, 3}});
  const kiln_fake_launch seen = last_launch();
  EXPECT_EQ(argument<float*>(seen, 0), device_pointer<float>());
  EXPECT_EQ(argument<std::int32_t>(seen, 1), 2147483647) << "size_t for i32";
  EXPECT_EQ(argument<std::int64_t>(seen, 2), 42) << "int literal for i64";
  EXPECT_EQ(argument<std::uint32_t>(seen, 3), 4294967295u);
  EXPECT_EQ(argument<std::uint64_t>(seen, 4), 7u);
  EXPECT_EQ(argument<float>(seen, 5), 0.5f) << "double for f32";
  EXPECT_EQ(argument<double>(seen, 6), 1.25) << "float for f64";
  EXPECT_EQ(argument<Twelve>(seen, 7).a[2], 3);
  k(nullptr, nullptr, -1, -1L, true, ~std::uint64_t{0}, 2.0f, 3.0, Twelve{});
  const kiln_fake_launch second = last_launch();
  EXPECT_EQ(argument<float*>(second, 0), nullptr);
  EXPECT_EQ(argument<std::int32_t>(second, 1), -1);
  EXPECT_EQ(argument<std::int64_t>(second, 2), -1);
  EXPECT_EQ(argument<std::uint32_t>(second, 3), 1u);
  EXPECT_EQ(argument<std::uint64_t>(second, 4), ~std::uint64_t{0});
}

TEST_F(Launch, RefusesIntegersThatDoNotFit) {
  const Kernel k = probe();
  const auto launch = [&](auto i, auto l, auto u, auto v) {
    k(nullptr, device_pointer<float>(), i, l, u, v, 1.0f, 1.0, Twelve{});
  };
  const auto calls = driver_calls([&] {
    expect_error(Errc::invalid_argument, {"'i' = 2147483648", "i32", "probe N=1"},
                 [&] { launch(std::size_t{1} << 31, 0, 0, 0); });
    expect_error(Errc::invalid_argument, {"'i' = -2147483649"},
                 [&] { launch(-(std::int64_t{1} << 31) - 1, 0, 0, 0); });
    expect_error(Errc::invalid_argument, {"'i' = 18446744073709551615"},
                 [&] { launch(~std::size_t{0}, 0, 0, 0); });
    expect_error(Errc::invalid_argument, {"'l' = 9223372036854775808", "i64"},
                 [&] { launch(0, std::uint64_t{1} << 63, 0, 0); });
    expect_error(Errc::invalid_argument, {"'u' = -1", "u32"}, [&] { launch(0, 0, -1, 0); });
    expect_error(Errc::invalid_argument, {"'u' = 4294967296"},
                 [&] { launch(0, 0, std::int64_t{1} << 32, 0); });
    expect_error(Errc::invalid_argument, {"'v' = -1", "u64"}, [&] { launch(0, 0, 0, -1); });
  });
  EXPECT_EQ(calls, 0u);
  EXPECT_EQ(kiln_fake_launches(), 0u);
}

TEST_F(Launch, RefusesAnotherKindOfArgumentAndNamesIt) {
  const Kernel k = probe();
  float* p = device_pointer<float>();
  const Twelve s{};
  const auto calls = driver_calls([&] {
    expect_error(Errc::invalid_argument, {"'p'", "integer", "ptr<f32>"},
                 [&] { k(nullptr, 65536, 1, 1, 1, 1, 1.0f, 1.0, s); });
    expect_error(Errc::invalid_argument, {"'i'", "pointer", "i32"},
                 [&] { k(nullptr, p, p, 1, 1, 1, 1.0f, 1.0, s); });
    expect_error(Errc::invalid_argument, {"'l'", "floating", "i64"},
                 [&] { k(nullptr, p, 1, 1.0, 1, 1, 1.0f, 1.0, s); });
    expect_error(Errc::invalid_argument, {"'f'", "integer", "f32"},
                 [&] { k(nullptr, p, 1, 1, 1, 1, 1, 1.0, s); });
    expect_error(Errc::invalid_argument, {"'s'", "16 bytes", "struct<12>"},
                 [&] { k(nullptr, p, 1, 1, 1, 1, 1.0f, 1.0, Sixteen{}); });
    expect_error(Errc::invalid_argument, {"'s'", "struct<12>"},
                 [&] { k(nullptr, p, 1, 1, 1, 1, 1.0f, 1.0, p); });
  });
  EXPECT_EQ(calls, 0u);
}

TEST_F(Launch, RefusesNumbersOfAWidthThatNoKernelHas) {
  const Kernel k = probe();
  float* p = device_pointer<float>();
  expect_error(Errc::invalid_argument, {"'d'", "16 bytes", "f64"},
               [&] { k(nullptr, p, 1, 1, 1, 1, 1.0f, 1.0L, Twelve{}); });
}

TEST_F(Launch, RefusesTooFewAndTooManyArgumentsAndNamesTheExpected) {
  const Kernel k = rms_norm();
  RmsNormCall c;
  expect_error(Errc::invalid_argument, {"rms_norm", "6 arguments", "eps", "residual?", "scale?"},
               [&] { k(nullptr, c.out, c.x, c.w, c.rows, c.stride_x, c.stride_out); });
  expect_error(Errc::invalid_argument, {"0 arguments"}, [&] { k(nullptr); });
  expect_error(Errc::invalid_argument, {"11 arguments"}, [&] {
    k(nullptr, c.out, c.x, c.w, c.rows, c.stride_x, c.stride_out, c.eps, c.out, 4096, nullptr, 1);
  });
  EXPECT_EQ(kiln_fake_launches(), 0u);
}

TEST_F(Launch, TypesAreCheckedAgainAfterAnotherCallsTypes) {
  const Kernel k = probe();
  float* p = device_pointer<float>();
  for (int i = 0; i < 3; ++i) {
    k(nullptr, p, 1, 1, 1, 1, 1.0f, 1.0, Twelve{});
    k(nullptr, p, 1L, 1U, 1, 1, 1.0, 1.0, Twelve{});
    EXPECT_THROW(k(nullptr, 1, 1, 1, 1, 1, 1.0f, 1.0, Twelve{}), Error);
  }
  EXPECT_EQ(kiln_fake_launches(), 6u);
}

TEST_F(Launch, OmittedOptionalArgumentsAreNullOrTheirValue) {
  const Kernel k = optional();
  k(nullptr, device_pointer<float>(), 21);
  kiln_fake_launch seen = last_launch();
  EXPECT_EQ(argument<float*>(seen, 2), nullptr);
  EXPECT_EQ(argument<std::int64_t>(seen, 3), 42) << "n * 2";
  EXPECT_EQ(argument<float>(seen, 4), 1.5f);
  EXPECT_EQ(argument<std::int32_t>(seen, 6), 7);
  EXPECT_EQ(argument<std::int32_t>(seen, 5), 8) << "late + 1, though late comes later";
  k(nullptr, device_pointer<float>(), 21, device_pointer<float>(64), 1, 2.0);
  seen = last_launch();
  EXPECT_EQ(argument<float*>(seen, 2), device_pointer<float>(64));
  EXPECT_EQ(argument<std::int64_t>(seen, 3), 1);
  EXPECT_EQ(argument<float>(seen, 4), 2.0f);
  EXPECT_EQ(argument<std::int32_t>(seen, 5), 8);
}

TEST_F(Launch, OptionalArgumentsOfAShippedTemplateTakeTheirValues) {
  const Kernel k = service().open("softmax").get(Dtype::f32, 1000);
  k(nullptr, device_pointer(0x10000), device_pointer(0x20000), 3, 1000, 1000);
  const kiln_fake_launch seen = last_launch();
  ASSERT_EQ(seen.argument_count, 8u);
  EXPECT_EQ(argument<float>(seen, 5), 1.0f);
  EXPECT_EQ(argument<void*>(seen, 6), nullptr);
  EXPECT_EQ(argument<std::int32_t>(seen, 7), 1000);
}

TEST_F(Launch, RefusesAnUnalignedPointerAndNamesItItsAddressAndTheAlignment) {
  const Kernel k = rms_norm();
  RmsNormCall call;
  call.x = device_pointer(0x200008);
  expect_error(Errc::requirement, {"rms_norm", "'x'", "0x200008", "16 bytes", "VEC * sizeof(T)"},
               [&] { call(k); });
  EXPECT_EQ(kiln_fake_launches(), 0u);
  call.x = device_pointer(0x200010);
  EXPECT_NO_THROW(call(k));
}

TEST_F(Launch, ABrokenRequirementSaysItsMessageWithTheValues) {
  const Kernel k = rms_norm();
  RmsNormCall call;
  call.stride_x = 4097;
  expect_error(Errc::requirement,
               {"rms_norm T=bf16 H=4096", "strides (4097, 4096, 4096) must be multiples of VEC = 8"},
               [&] { call(k); });
  call.rows = -1;
  expect_error(Errc::requirement, {"rows = -1 must not be negative"}, [&] { call(k); });
  EXPECT_EQ(kiln_fake_launches(), 0u);
  call.rows = 1;
  EXPECT_NO_THROW(call(k)) << "one row needs no stride";
  const Kernel fused = service().open("rms_norm").get(Dtype::bf16, 4096, true);
  expect_error(Errc::requirement, {"FUSED_ADD needs residual"}, [&] { RmsNormCall()(fused); });
}

TEST_F(Launch, NoRowsLaunchNothingAndSucceed) {
  const Kernel k = rms_norm();
  RmsNormCall call;
  call.rows = 0;
  EXPECT_EQ(driver_calls([&] { call(k); }), 0u);
  EXPECT_EQ(kiln_fake_launches(), 0u);
}

TEST_F(Launch, AManifestThatDeclaresOtherArgumentsThanTheKernelIsRefused) {
  const std::string source =
      "template <int N> __global__ void f(float* out, int n, long long m) { *out = n + m; }";
  add(service(), "too_few", argument_toml("out", "ptr<f32>") + argument_toml("n", "i32") + kOneBlock, source);
  expect_error(Errc::manifest, {"too_few", "2 arguments", "3"},
               [&] { service().open("too_few").get()(nullptr, device_pointer<float>(), 1); });
  add(service(), "wider",
      argument_toml("out", "ptr<f32>") + argument_toml("n", "i64") + argument_toml("m", "i64") + kOneBlock,
      source);
  expect_error(Errc::manifest, {"wider", "'n'", "8 bytes", "4"},
               [&] { service().open("wider").get()(nullptr, device_pointer<float>(), 1, 1); });
  EXPECT_EQ(kiln_fake_launches(), 0u);
}

TEST_F(Launch, RunTimeValuesFollowTheArguments) {
  add(service(), "routed",
      argument_toml("out", "ptr<f32>") +
          "[runtime]\nblocks = { value = 3 }\n[launch]\ngrid = [\"blocks\"]\nblock = [\"32\"]\n",
      "template <int N> __global__ void f(float* out) { *out = N; }");
  const Kernel k = service().open("routed").get();
  k(nullptr, device_pointer<float>(), 17);
  EXPECT_EQ(last_launch().grid[0], 17u);
  EXPECT_EQ(last_launch().argument_count, 1u);
  expect_error(Errc::invalid_argument, {"(out, blocks)"}, [&] { k(nullptr, device_pointer<float>()); });
  expect_error(Errc::invalid_argument, {"'blocks'", "floating"},
               [&] { k(nullptr, device_pointer<float>(), 1.0); });
}

TEST_F(Launch, RawTakesGeometryAndParametersAsTheyAre) {
  const Kernel k = rms_norm();
  RmsNormCall c;
  void* residual = nullptr;
  std::int64_t stride_residual = 1;
  void* scale = nullptr;
  void* parameters[] = {&c.out,        &c.x,   &c.w,      &c.rows,          &c.stride_x,
                        &c.stride_out, &c.eps, &residual, &stride_residual, &scale};
  LaunchConfig config;
  config.grid[0] = 4, config.grid[1] = 2, config.block[0] = 64;
  config.cluster[0] = 2, config.pdl = 1, config.cooperative = 1, config.shared_bytes = 100;
  config.stream = make_stream();
  k.launch(config, parameters);
  kiln_fake_launch seen = last_launch();
  EXPECT_EQ(seen.grid[0], 4u);
  EXPECT_EQ(seen.grid[1], 2u);
  EXPECT_EQ(seen.block[0], 64u);
  EXPECT_EQ(seen.cluster[0], 2u);
  EXPECT_EQ(seen.cluster[2], 1u);
  EXPECT_EQ(seen.shared_bytes, 100u);
  EXPECT_TRUE(seen.programmatic);
  EXPECT_TRUE(seen.cooperative);
  EXPECT_EQ(seen.stream, config.stream);
  EXPECT_EQ(argument<std::int32_t>(seen, 3), c.rows);
  k.launch(LaunchConfig(), parameters);
  seen = last_launch();
  EXPECT_EQ(seen.grid[0], 1u);
  EXPECT_EQ(seen.cluster[0], 0u) << "zeros: none";
  EXPECT_FALSE(seen.programmatic);
  config.grid[0] = 0;
  expect_error(Errc::driver, {"CUDA_ERROR_INVALID_VALUE", "launching rms_norm"},
               [&] { k.launch(config, parameters); });
}

}  // namespace
}  // namespace kiln::testing
