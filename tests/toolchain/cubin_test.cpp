#include "toolchain/cubin.hpp"

#include <gtest/gtest.h>

#include "kiln/error.hpp"
#include "tests/support/fake_driver/make_cubin.hpp"

namespace kiln::toolchain {
namespace {

CubinFacts read(const test::CubinRecipe& recipe) {
  const std::string image = test::make_cubin(recipe);
  return read_cubin(std::as_bytes(std::span(image)));
}

CubinKernel full_kernel() {
  CubinKernel kernel = test::make_kernel("_Z4fullv", {8, 4, 128, 6000, 2});
  kernel.registers = 168;
  kernel.stack_bytes = 600;
  kernel.shared_bytes = 1200;
  kernel.max_threads = 384;
  kernel.required_block = {128, 2, 1};
  kernel.cluster = {2, 4, 1};
  return kernel;
}

TEST(Cubin, ReadsEveryFactOfAKernel) {
  const CubinFacts facts = read({.sm = 90, .elf_abi = 8, .kernels = {full_kernel()}});
  const CubinKernel* kernel = facts.kernel("_Z4fullv");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->registers, 168u);
  EXPECT_EQ(kernel->stack_bytes, 600u);
  EXPECT_EQ(kernel->shared_bytes, 1200u);
  EXPECT_EQ(kernel->max_threads, 384u);
  EXPECT_EQ(kernel->required_block, (std::array<std::uint32_t, 3>{128, 2, 1}));
  EXPECT_EQ(kernel->cluster, (std::array<std::uint32_t, 3>{2, 4, 1}));
  ASSERT_EQ(kernel->arguments.size(), 5u);
  const std::uint32_t sizes[] = {8, 4, 128, 6000, 2};
  for (std::uint16_t i = 0; i < 5; ++i) {
    EXPECT_EQ(kernel->arguments[i].ordinal, i);
    EXPECT_EQ(kernel->arguments[i].size, sizes[i]);
    EXPECT_EQ(kernel->arguments[i].offset, full_kernel().arguments[i].offset);
  }
}

TEST(Cubin, ReadsTheArchInBothEncodings) {
  for (const int sm : {75, 80, 89, 90}) EXPECT_EQ(read({.sm = sm, .elf_abi = 7, .kernels = {}}).sm, sm);
  for (const int sm : {75, 80, 90, 100, 103, 110, 120, 121})
    EXPECT_EQ(read({.sm = sm, .elf_abi = 8, .kernels = {}}).sm, sm);
}

TEST(Cubin, SubtractsTheSystemsSharedMemoryFromSm90On) {
  CubinKernel kernel = test::make_kernel("k", {});
  kernel.shared_bytes = 48;
  for (const int sm : {80, 90, 120})
    EXPECT_EQ(read({.sm = sm, .elf_abi = 8, .kernels = {kernel}}).kernels[0].shared_bytes, 48u);
}

TEST(Cubin, KeepsSeveralKernelsApart) {
  CubinKernel one = test::make_kernel("one", {8}), two = test::make_kernel("two", {4, 4});
  one.registers = 11;
  two.registers = 22;
  const CubinFacts facts = read({.sm = 80, .elf_abi = 8, .kernels = {one, two}});
  ASSERT_EQ(facts.kernels.size(), 2u);
  EXPECT_EQ(facts.kernel("one")->registers, 11u);
  EXPECT_EQ(facts.kernel("two")->registers, 22u);
  EXPECT_EQ(facts.kernel("two")->arguments.size(), 2u);
  EXPECT_EQ(facts.kernel("three"), nullptr);
}

TEST(Cubin, RefusesAnImageOfAnotherMachine) {
  std::string image = test::make_cubin({});
  image[18] = 62;  // e_machine: x86-64
  EXPECT_THROW(read_cubin(std::as_bytes(std::span(image))), Error);
}

TEST(Cubin, RefusesArgumentsThatAreNotNumberedFrom0) {
  CubinKernel kernel = test::make_kernel("k", {8, 8});
  kernel.arguments[1].ordinal = 2;
  EXPECT_THROW(read({.sm = 90, .elf_abi = 8, .kernels = {kernel}}), Error);
}

}  // namespace
}  // namespace kiln::toolchain
