// Facts about kernels, read from a cubin without a driver.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::toolchain {

/// One kernel argument. Compare ordinal and size only: offsets differ between archs, because 64-aligned
/// arguments follow the constant bank.
struct CubinArgument {
  std::uint16_t ordinal = 0;
  std::uint32_t offset = 0, size = 0;  ///< bytes
};

struct CubinKernel {
  std::string name;                      ///< lowered (mangled)
  std::vector<CubinArgument> arguments;  ///< by ordinal
  std::uint32_t registers = 0;           ///< per thread
  std::uint32_t stack_bytes = 0;   ///< local memory per thread, callees included; 0 when recursion hides it
  std::uint32_t shared_bytes = 0;  ///< static shared memory, without the system's 1 KiB of sm_90 and later
  std::uint32_t max_threads = 0;   ///< per block, from __launch_bounds__; 0 when not bounded
  std::array<std::uint32_t, 3> required_block{}, cluster{};  ///< REQNTID, CTA_PER_CLUSTER; zeros when absent
  /// The numbers of ptxas -v, read from the cubin itself. 0 in images below sm_70 and of toolkits before
  /// 12.8, which do not record spills.
  std::uint32_t spill_store_bytes = 0, spill_load_bytes = 0;
};

/// A __device__ or __constant__ variable that the image defines.
struct CubinVariable {
  std::string name;  ///< lowered (mangled)
  std::uint64_t bytes = 0;
  std::optional<std::int64_t> value;  ///< initial value of a variable of eight bytes; nothing for other sizes
};

struct CubinFacts {
  int sm = 0;  ///< 90 for sm_90 and sm_90a
  std::vector<CubinKernel> kernels;
  std::vector<CubinVariable> variables;
  const CubinKernel* kernel(std::string_view lowered_name) const noexcept;
  const CubinVariable* variable(std::string_view lowered_name) const noexcept;
};

/// Throws Error(io) when `image` is not a CUDA ELF file or is damaged.
CubinFacts read_cubin(std::span<const std::byte> image);

}  // namespace kiln::toolchain
