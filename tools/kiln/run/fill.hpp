// `fill = "ns::kernel<{T}>"`: a kernel in the user's source that makes an input of `kiln run`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/launch/library.hpp"
#include "runtime/service/service.hpp"
#include "tools/kiln/run/device.hpp"

namespace kiln::cli {

/// A __global__ function with the arguments (T* out, long long n, unsigned long long seed). It comes
/// from the reference's source or, without a reference, the kernel's. It is compiled for this process
/// only and not cached.
class FillKernel {
 public:
  /// `argument` is the argument's name for messages. Throws CompileError, and Error(manifest) when the kernel
  /// takes other arguments.
  FillKernel(runtime::Service& service, PrimaryContext& gpu, const runtime::KernelTemplate& opened,
             const source::Resolved& resolved, const std::string& instantiate, const std::string& argument);
  /// Launches ceil(elements / 256) blocks of 256 threads.
  void launch(const Buffer& buffer, std::uint64_t elements, std::uint64_t seed) const;

 private:
  const toolchain::Driver& driver_;
  std::string what_;
  std::optional<runtime::Library> library_;
};

}  // namespace kiln::cli
