// The worked example of docs/guide/write-a-template.md through the public API, over the fake driver.
#include "docs/writing_templates.hpp"
#include "runtime/fake_runtime.hpp"

namespace kiln::testing {
namespace {

class WorkedExampleLaunch : public FakeRuntime {
 protected:
  void SetUp() override {
    FakeRuntime::SetUp();
    if (IsSkipped()) return;
    tree_.write("my-templates/add_bias_gelu.cu", example_.kernel);
    tree_.write("my-templates/add_bias_gelu.reference.cu", example_.reference);
    tree_.write("my-templates/add_bias_gelu.toml", example_.manifest);
    ::setenv("KILN_TEMPLATE_PATH", tree_.at("my-templates").c_str(), 1);
    ::setenv("KILN_CACHE_DIR", tree_.at("cache").c_str(), 1);
  }
  const test::WorkedExample example_ = test::worked_example();
};

TEST_F(WorkedExampleLaunch, LaunchesAsPrinted) {
  CUstream stream = make_stream();
  void* out = device_pointer(0x100000);
  const void *x = device_pointer(0x200000), *bias = device_pointer(0x300000);
  const int rows = 5;
  // clang-format off
  // page
  kiln::Service service;                                // finds it by KILN_TEMPLATE_PATH, or Options::template_path
  auto add_bias_gelu = service.open("add_bias_gelu");   // once; bound to the current CUDA context
  const kiln::Kernel k = add_bias_gelu.get({{"T", kiln::Dtype::bf16}, {"D", 4096}});  // memory, disk or compiler
  k(stream, out, x, bias, rows, 4096, 4096);            // grid and checks from the manifest
  // end of page
  // clang-format on
  const kiln_fake_launch launch = last_launch();
  EXPECT_NE(std::string(launch.kernel).find("add_bias_gelu"), std::string::npos);
  EXPECT_EQ(launch.grid[0], 10u) << "5 rows of 512 vectors, 256 a block";
  EXPECT_EQ(launch.block[0], 256u);
  EXPECT_EQ(launch.programmatic, 1);
  EXPECT_EQ(argument<void*>(launch, 0), out);
  EXPECT_EQ(argument<int>(launch, 3), 5);
  EXPECT_EQ(argument<std::int64_t>(launch, 5), 4096);

  const std::size_t before = kiln_fake_launches();
  k(stream, out, x, bias, 0, 4096, 4096);
  EXPECT_EQ(kiln_fake_launches(), before) << "no rows: a valid call that launches nothing";
  expect_error(Errc::requirement, {"strides (4097, 4096) must be multiples of VEC = 8"},
               [&] { k(stream, out, x, bias, rows, 4097, 4096); });
  expect_error(Errc::requirement, {"rows = -1 must not be negative"},
               [&] { k(stream, out, x, bias, -1, 4096, 4096); });
  expect_error(Errc::requirement, {"'x'", "16"},
               [&] { k(stream, out, device_pointer(0x200008), bias, rows, 4096, 4096); });
}

TEST_F(WorkedExampleLaunch, TheCallIsTheOneOfThisTest) {
  std::string here = test::read_source("tests/docs/writing_templates_launch_test.cpp"), call;
  const std::string begin = "  // page\n", end = "  // end of page\n";
  here.erase(0, here.find('\n' + begin) + 1 + begin.size());
  std::istringstream lines(here.substr(0, here.find(end)));
  for (std::string line; std::getline(lines, line);) call += line.substr(2) + '\n';
  EXPECT_EQ(example_.call, call);
}

}  // namespace
}  // namespace kiln::testing
