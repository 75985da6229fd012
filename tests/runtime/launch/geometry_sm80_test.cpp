// Geometry on a device of compute capability 8.0: launches have no attribute that the device does not know.
#include "runtime/fake_runtime.hpp"

namespace kiln::testing {
namespace {

const bool kOnSm80 = ::setenv("KILN_FAKE_ARCH", "80", 1) == 0;  // read by the fake driver's first call

class Sm80 : public FakeRuntime {};

TEST_F(Sm80, HasNeitherClustersNorProgrammaticLaunch) {
  ASSERT_TRUE(kOnSm80);
  Service service(options());
  const KernelTemplate softmax = service.open("softmax");
  const Kernel k = softmax.get(Dtype::f32, 128256);
  EXPECT_NE(std::string(k.info().specialization).find("CLUSTER=1"), std::string::npos);
  k(nullptr, device_pointer(0x10000), device_pointer(0x20000), 3, 128256, 128256);
  const kiln_fake_launch seen = last_launch();
  EXPECT_EQ(seen.grid[0], 3u);
  EXPECT_EQ(seen.cluster[0], 0u);
  EXPECT_FALSE(seen.programmatic);
  RmsNormCall()(service.open("rms_norm").get(Dtype::bf16, 4096));
  EXPECT_FALSE(last_launch().programmatic);
  expect_error(Errc::requirement, {"CLUSTER = 2 needs sm_90"}, [&] {
    softmax.get({{"T", "f32"}, {"H", 32000}, {"CLUSTER", 2}});
  });
}

TEST_F(Sm80, IsCompiledForItsOwnArch) {
  Service service(options());
  EXPECT_EQ(service.open("rms_norm", Device::none("sm_80")).compile(Dtype::bf16, 4096).key(),
            std::string(service.open("rms_norm").get(Dtype::bf16, 4096).info().key));
}

}  // namespace
}  // namespace kiln::testing
