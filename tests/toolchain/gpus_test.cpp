#include "toolchain/gpus.hpp"

#include <gtest/gtest.h>

namespace kiln::toolchain {
namespace {

TEST(Gpus, AreFoundByTheNamesThatPeopleUse) {
  EXPECT_EQ(capabilities_of("H100"), std::vector{90});
  EXPECT_EQ(capabilities_of("rtx_6000-ada"), std::vector{89});
  for (const char* name : {"H800", "h800"}) EXPECT_EQ(capabilities_of(name), std::vector{90}) << name;
  EXPECT_EQ(capabilities_of("A800"), std::vector{80});
  for (const char* name : {"L20", "RTX 4080", "RTX 6000 Ada"})
    EXPECT_EQ(capabilities_of(name), std::vector{89}) << name;
  EXPECT_TRUE(capabilities_of("H1000").empty());
}

TEST(Gpus, TheCapabilitiesOfAllGenerationsAscend) {
  const std::vector<int> all = capabilities_of_generations();
  EXPECT_EQ(all, (std::vector{80, 86, 89, 90, 100, 103, 120, 121}));
}

}  // namespace
}  // namespace kiln::toolchain
