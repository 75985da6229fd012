// Operators: what reaches the kernel for the tensors of a call, what kiln allocates, and what it refuses.
#include <map>
#include <optional>

#include "runtime/fake_runtime.hpp"

namespace kiln::testing {
namespace {

/// Makes tensors at addresses that count up, and remembers what was asked for.
struct Allocator {
  struct Made {
    std::vector<std::int64_t> shape, strides;
    int code = 0, bits = 0, device = 0;
  };
  std::map<std::size_t, Made> made;
  std::uintptr_t next = 0x7000000;

  static std::int32_t allocate(std::size_t index, const kiln_tensor* wanted, kiln_tensor* out, void* user) {
    auto& self = *static_cast<Allocator*>(user);
    Made& made = self.made[index];
    made.shape.assign(wanted->shape, wanted->shape + wanted->ndim);
    made.strides.assign(wanted->strides, wanted->strides + wanted->ndim);
    made.code = wanted->dtype_code, made.bits = wanted->dtype_bits, made.device = wanted->device_id;
    *out = *wanted;
    out->data = reinterpret_cast<void*>(self.next);
    self.next += 0x1000000;
    return 0;
  }
};

class Operators : public FakeRuntime {
 protected:
  using Shape = std::vector<std::int64_t>;

  Service& service() {
    if (!service_) service_.emplace(options());
    return *service_;
  }
  void TearDown() override {
    service_.reset();
    FakeRuntime::TearDown();
  }
  TensorView at(std::uintptr_t address, Dtype dtype, std::initializer_list<std::int64_t> shape,
                std::initializer_list<std::int64_t> strides = {}) {
    return {device_pointer(address), dtype, shape, strides};
  }
  std::string refused(const Operator& op, std::initializer_list<Operand> operands,
                      const std::vector<std::string>& parts, kiln_allocator allocator = Allocator::allocate) {
    Allocator ours;
    const unsigned launches = kiln_fake_launches();
    const std::string text =
        expect_error(Errc::invalid_argument, parts, [&] { op.call(nullptr, operands, allocator, &ours); });
    EXPECT_EQ(kiln_fake_launches(), launches);
    return text;
  }
  std::optional<Service> service_;
};

TEST_F(Operators, TensorsBecomeParametersArgumentsAndOutputs) {
  const Operator op = service().operator_("rms_norm");
  const CUstream stream = make_stream();
  Allocator ours;
  op.call(
      stream,
      {at(0x200000, Dtype::bf16, {2, 3, 4096}, {3 * 5000, 5000, 1}), at(0x300000, Dtype::bf16, {4096}), 1e-5},
      Allocator::allocate, &ours);
  const kiln_fake_launch seen = last_launch();
  EXPECT_NE(std::strstr(seen.kernel, "rms_norm"), nullptr);
  EXPECT_EQ(seen.stream, stream);
  ASSERT_EQ(ours.made.size(), 1u);
  const Allocator::Made& out = ours.made.begin()->second;
  EXPECT_EQ(ours.made.begin()->first, 6u) << "six inputs come first";
  EXPECT_EQ(out.shape, (Shape{2, 3, 4096}));
  EXPECT_EQ(out.strides, (Shape{3 * 4096, 4096, 1}));
  EXPECT_EQ(out.code, 4);
  EXPECT_EQ(out.bits, 16);
  EXPECT_EQ(argument<void*>(seen, 0), device_pointer(0x7000000));
  EXPECT_EQ(argument<void*>(seen, 1), device_pointer(0x200000));
  EXPECT_EQ(argument<void*>(seen, 2), device_pointer(0x300000));
  EXPECT_EQ(argument<std::int32_t>(seen, 3), 6);
  EXPECT_EQ(argument<std::int64_t>(seen, 4), 5000);
  EXPECT_EQ(argument<std::int64_t>(seen, 5), 4096);
  EXPECT_EQ(argument<float>(seen, 6), 1e-5f);
  EXPECT_EQ(argument<void*>(seen, 7), nullptr);
}

TEST_F(Operators, OutputsMayBeTheCallers) {
  const Operator op = service().operator_("rms_norm");
  op(nullptr, at(0x200000, Dtype::f16, {8, 512}), at(0x300000, Dtype::f16, {512}), nullptr, nullptr,
     Dtype::f32, nullptr, at(0x400000, Dtype::f32, {8, 512}, {1024, 1}));
  const kiln_fake_launch seen = last_launch();
  EXPECT_EQ(argument<void*>(seen, 0), device_pointer(0x400000));
  EXPECT_EQ(argument<std::int64_t>(seen, 5), 1024);
  EXPECT_EQ(argument<float>(seen, 6), 1e-6f) << "the default of the signature";
}

TEST_F(Operators, AWrittenInputIsTheKernels) {
  const Operator op = service().operator_("fused_add_rms_norm");
  Allocator ours;
  op.call(nullptr,
          {at(0x200000, Dtype::bf16, {8, 512}), at(0x500000, Dtype::bf16, {8, 512}, {600, 1}),
           at(0x300000, Dtype::bf16, {512})},
          Allocator::allocate, &ours);
  const kiln_fake_launch seen = last_launch();
  EXPECT_EQ(argument<void*>(seen, 7), device_pointer(0x500000));
  EXPECT_EQ(argument<std::int64_t>(seen, 8), 600);
}

TEST_F(Operators, WhatTheSignatureDoesNotAllowIsRefused) {
  const Operator op = service().operator_("rms_norm");
  const TensorView x = at(0x200000, Dtype::bf16, {8, 512}), w = at(0x300000, Dtype::bf16, {512});
  refused(op, {x}, {"rms_norm: weight is not given"});
  refused(op, {x, at(0x300000, Dtype::bf16, {511})}, {"rms_norm: weight is bf16 [511], expected [H = 512]"});
  refused(op, {x, at(0x300000, Dtype::f16, {512})}, {"rms_norm: weight is f16 [512], expected bf16"});
  refused(op, {x, at(0x300000, Dtype::ue8m0, {512})}, {"rms_norm: weight is ue8m0 [512], expected bf16"});
  refused(op, {x, w, "much"}, {"rms_norm: eps is a text, expected a number"});
  refused(op, {x, w, 1e-6, 2}, {"rms_norm: gemma = 2, expected 0 or 1"});
  refused(op, {x, w, 1e-6, false, "bf17"}, {"rms_norm: out_dtype = 'bf17' is not allowed", "bf16"});
  refused(op, {1, w}, {"rms_norm: x is an integer, expected a tensor"});
  refused(op, {x, w, 1e-6, false, nullptr, at(0x600000, Dtype::f32, {2})},
          {"rms_norm: scale is f32 [2], expected [1] or []"});
  refused(op, {x, w}, {"output out is not given", "no allocator"}, nullptr);
  refused(op, {x, w, nullptr, nullptr, nullptr, nullptr, at(0x400000, Dtype::bf16, {8, 511})},
          {"rms_norm: out is bf16 [8, 511], expected [..., H = 512]"});
  refused(op, {x, w, nullptr, nullptr, nullptr, nullptr, at(0x400000, Dtype::bf16, {7, 512})},
          {"rms_norm: out is bf16 [7, 512]"});
  refused(op, {x, w, nullptr, nullptr, nullptr, nullptr, x, x}, {"8 operands are given"});
  refused(op, {TensorView(device_pointer(), Dtype::bf16, {8, 512}, 1), w},
          {"x lies on device 1, expected device 0"});
  const Operator fused = service().operator_("fused_add_rms_norm");
  refused(fused, {x, at(0x500000, Dtype::bf16, {4, 512}), w},
          {"fused_add_rms_norm: residual is bf16 [4, 512]"});
  const Operator act = service().operator_("act_and_mul");
  refused(act, {at(0x200000, Dtype::bf16, {8, 511})}, {"act_and_mul: x has rows of 511 elements"});
}

TEST_F(Operators, ALayoutThatTheKernelDoesNotReadIsCopiedOrRefused) {
  const Operator op = service().operator_("rms_norm");
  const TensorView apart = at(0x200000, Dtype::bf16, {8, 512}, {1, 8});
  const TensorView out = at(0x400000, Dtype::bf16, {8, 512});
  refused(op, {apart, at(0x300000, Dtype::bf16, {512}), nullptr, nullptr, nullptr, nullptr, out},
          {"rms_norm: x is bf16 [8, 512] with strides [1, 8]", "make it contiguous"}, nullptr);
  Allocator ours;
  op.call(nullptr, {apart, at(0x300000, Dtype::bf16, {512})}, Allocator::allocate, &ours);
  ASSERT_TRUE(ours.made.contains(0)) << "a copy of x was asked for";
  EXPECT_EQ(ours.made[0].strides, (Shape{512, 1}));
  const kiln_fake_launch seen = last_launch();
  EXPECT_EQ(argument<void*>(seen, 1), device_pointer(0x8000000)) << "the output was allocated first";
  EXPECT_EQ(argument<std::int64_t>(seen, 4), 512);
  refused(service().operator_("fused_add_rms_norm"),
          {at(0x200000, Dtype::bf16, {8, 512}), apart, at(0x300000, Dtype::bf16, {512})},
          {"fused_add_rms_norm: residual is", "make it contiguous"});
}

TEST_F(Operators, ACallMayTakeKernelsFromDiskOnlyOrAfterASeal) {
  const Operator op = service().operator_("rms_norm");
  const TensorView x = at(0x200000, Dtype::f32, {8, 64}), weight = at(0x300000, Dtype::f32, {64});
  const TensorView out = at(0x400000, Dtype::f32, {8, 64});
  const Operand operands[] = {x, weight, {}, {}, {}, {}, out};
  kiln_call call{sizeof call, nullptr, operands, 7, nullptr, nullptr, 1, 0};
  const unsigned launches = kiln_fake_launches();
  expect_error(Errc::not_ready, {"rms_norm", "may not compile"}, [&] { op.call(call); });
  service().seal();
  call.no_compile = 0;
  expect_error(Errc::not_ready, {"rms_norm", "sealed"}, [&] { op.call(call); });
  EXPECT_EQ(kiln_fake_launches(), launches);
  call.past_seal = 1;
  op.call(call);
  EXPECT_EQ(kiln_fake_launches(), launches + 1);
  call.past_seal = 0;
  op.call(call);
  EXPECT_EQ(kiln_fake_launches(), launches + 2) << "the kernel is ready now";
}

TEST_F(Operators, TensorsHaveTheDtypeThatAnInputGivesOrItsDefault) {
  add(service(), "mixed", R"(
[param.OUT]
kind = "dtype"
values = ["bf16", "f32"]
default = "bf16"
[[arg]]
name = "out"
type = "ptr<OUT>"
access = "write"
shape = ["4"]
[[arg]]
name = "first"
type = "ptr<OUT>"
optional = true
shape = ["4"]
[[arg]]
name = "second"
type = "ptr<OUT>"
optional = true
shape = ["4"]
[[bind]]
call = "x: f32[n], first: OUT[4]?, second: OUT[4]?, out_dtype: OUT"
out = "out: OUT[4]"
[launch]
grid = [1]
block = [1]
)",
      "template <int N> __global__ void f(void* out, const void* first, const void* second) {}");
  const Operator op = service().operator_("mixed");
  const TensorView x = at(0x1000000, Dtype::f32, {2});
  const TensorView half = at(0x2000000, Dtype::bf16, {4}), full = at(0x3000000, Dtype::f32, {4});
  const Operand none{};
  const auto bits_of_out = [&](std::initializer_list<Operand> operands) {
    Allocator made;
    op.call(nullptr, operands, Allocator::allocate, &made);
    return made.made.begin()->second.bits;
  };
  EXPECT_EQ(bits_of_out({x, half, half}), 16);
  EXPECT_EQ(bits_of_out({x, none, half}), 16);
  EXPECT_EQ(bits_of_out({x, none, full, "f32"}), 32);
  refused(op, {x, full}, {"mixed: first is f32 [4], expected bf16"});
  refused(op, {x, none, full}, {"mixed: second is f32 [4], expected bf16"});
  refused(op, {x, half, none, "f32"}, {"mixed: first is bf16 [4], expected f32"});
}

TEST_F(Operators, ADescriptionHasOperandsDefaultsAndRules) {
  const std::string one = service().describe_operators("act_and_mul");
  for (
      const char* part :
      {R"("name":"x","kind":"tensor","optional":false,"written":false,"dtype":"T","shapes":[["...","W"]])",
       R"("name":"act","kind":"choice")",
       R"("default":"silu","choices":["silu","gelu","gelu_tanh","swigluoai"])",
       R"("name":"alpha","kind":"number")", R"("default":1.702)", R"("shapes":[["1"],[]])",
       R"({"expr":"W % 2 == 0","message":"x has rows of {W})", R"("shapes":[["...","W / 2"]])",
       R"({"name":"D","kind":"int","value":"W / 2","given_by":null,"family":false,"default":null})",
       R"({"name":"OUT","kind":"dtype","value":"out_dtype","given_by":"out_dtype","family":false,"default":"T"})"})
    EXPECT_NE(one.find(part), std::string::npos) << part << '\n' << one;
  const std::string all = service().describe_operators();
  const std::size_t window = all.find(R"("name":"window_left")");
  ASSERT_NE(window, std::string::npos);
  const std::string_view behind = std::string_view(all).substr(all.find(R"("default":)", window));
  EXPECT_TRUE(behind.starts_with(R"("default":-1,)")) << behind.substr(0, 40);
  for (const char* name : {"act_and_mul_group_fp8", "fused_add_rms_norm", "rope_", "delta_recurrent"})
    EXPECT_NE(all.find(std::string(R"("name":")") + name + '"'), std::string::npos) << name;
  expect_error(Errc::unknown_template, {"'rms_nrom'", "rms_norm"},
               [&] { service().describe_operators("rms_nrom"); });
}

TEST_F(Operators, UnknownOperatorsAreNamedWithTheKnownOnes) {
  expect_error(Errc::unknown_template,
               {"there is no operator 'rmsnorm'", "did you mean 'rms_norm'", "act_and_mul"},
               [&] { service().operator_("rmsnorm"); });
  add(service(), "plain", "[launch]\ngrid = [1]\nblock = [1]\n", "template <int N> __global__ void f() {}");
  expect_error(Errc::unknown_template, {"template 'plain' is no operator: its manifest has no [bind]"},
               [&] { service().operator_("plain"); });
  EXPECT_EQ(service().operator_("rms_norm.fused_add_rms_norm").get(),
            service().operator_("fused_add_rms_norm").get());
}

TEST_F(Operators, TheSizeOfATensorPicksTheMemberOfAFamily) {
  service().add_template(
      "format = 1\n[template]\nname = \"twice\"\ninstantiate = \"twice<{H}, {ROWS}>\"\n"
      "[param.H]\nkind = \"int\"\nrange = [1, 4096]\n"
      "[param.ROWS]\nkind = \"int\"\nvalues = [8, 32]\n"
      "[family]\nby = \"rows\"\nparameter = \"ROWS\"\n"
      "[[arg]]\nname = \"out\"\ntype = \"ptr<f32>\"\naccess = \"write\"\nshape = [\"rows\", \"H\"]\n"
      "[[arg]]\nname = \"x\"\ntype = \"ptr<f32>\"\nshape = [\"rows\", \"H\"]\n"
      "[[arg]]\nname = \"rows\"\ntype = \"i32\"\n"
      "[[bind]]\ncall = \"x: f32[..., H]\"\nout = \"out: f32[..., H]\"\n"
      "[launch]\ngrid = [\"ROWS\"]\nblock = [64]\n",
      "template <int H, int ROWS> __global__ void twice(float* out, const float* x, int rows) {}\n");
  const Operator op = service().operator_("twice");
  const auto launched = [&](std::initializer_list<std::int64_t> shape) {
    Allocator ours;
    op.call(nullptr, {at(0x200000, Dtype::f32, shape)}, Allocator::allocate, &ours);
    return last_launch().grid[0];
  };
  EXPECT_EQ(launched({2, 4, 64}), 8u);
  EXPECT_EQ(service().stats().compiles, 1u);
  EXPECT_EQ(launched({9, 64}), 32u);
  EXPECT_EQ(launched({1000, 64}), 32u);
  EXPECT_EQ(launched({1, 64}), 8u);
  EXPECT_EQ(launched({9, 64}), 32u) << "a call of a shape that was seen before";
  EXPECT_EQ(argument<std::int32_t>(last_launch(), 2), 9);
  EXPECT_EQ(service().stats().compiles, 2u);
}

TEST_F(Operators, ATensorMayLackTheFirstDimensionsOfItsArgument) {
  const Operator gemm = service().operator_("gemm"), batched = service().operator_("gemm_batched");
  const TensorView b = at(0x300000, Dtype::bf16, {256, 512});
  Allocator ours;
  gemm.call(nullptr, {at(0x200000, Dtype::bf16, {20, 512}, {1024, 1}), b}, Allocator::allocate, &ours);
  ASSERT_EQ(ours.made.size(), 1u) << "rows may be apart, so nothing is copied";
  EXPECT_EQ(ours.made.begin()->second.shape, (Shape{20, 256}));
  kiln_fake_launch seen = last_launch();
  EXPECT_EQ(argument<std::int32_t>(seen, 4), 20) << "m";
  EXPECT_EQ(argument<std::int32_t>(seen, 5), 1) << "batch, as the manifest says";
  EXPECT_EQ(argument<std::int64_t>(seen, 6), 256) << "stride_d";
  EXPECT_EQ(seen.block[0], 256u) << "a kernel for few rows, with 64 rows of b in a tile";
  Allocator more;
  gemm.call(nullptr, {at(0x200000, Dtype::bf16, {5000, 512}), b}, Allocator::allocate, &more);
  EXPECT_EQ(last_launch().block[0], 384u) << "a kernel for many rows, with 128 of them in a tile";
  Allocator theirs;
  batched.call(nullptr, {at(0x200000, Dtype::bf16, {3, 20, 512}), at(0x300000, Dtype::bf16, {3, 256, 512})},
               Allocator::allocate, &theirs);
  seen = last_launch();
  EXPECT_EQ(argument<std::int32_t>(seen, 5), 3);
  EXPECT_EQ(argument<std::int64_t>(seen, 7), 20 * 256) << "stride_d_batch";
  refused(gemm, {at(0x200000, Dtype::bf16, {20, 504}), b}, {"gemm: b is bf16 [256, 512]", "[rows, K = 504]"});
}

}  // namespace
}  // namespace kiln::testing
