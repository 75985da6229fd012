// Makes small cubins from bytes, for tests without NVRTC. They have the
// sections that kiln and the fake driver read.
#pragma once

#include <string>
#include <vector>

#include "toolchain/cubin.hpp"

namespace kiln::test {

struct CubinRecipe {
  int sm = 90;
  int elf_abi = 8;  ///< 7: as toolkit 12 writes before sm_100
  std::vector<toolchain::CubinKernel> kernels;
};

/// An image that read_cubin reads back as `recipe` says, except for spills.
std::string make_cubin(const CubinRecipe& recipe);

/// A kernel with arguments of these sizes in bytes, laid out one after the other with natural alignment.
toolchain::CubinKernel make_kernel(const std::string& name, const std::vector<std::uint32_t>& argument_sizes);

}  // namespace kiln::test
