// The arguments of a launch whose types are known only at run time.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/service/service.hpp"
#include "toolchain/driver.hpp"

namespace kiln::cli {

/// A typed argument list built at run time, for LoadedKernel::launch.
class ArgumentList {
 public:
  ArgumentList& pointer(toolchain::CUdeviceptr value) { return add({KILN_ARG_POINTER, 8}, value); }
  ArgumentList& integer(std::int64_t value) {
    return add({KILN_ARG_SIGNED, 8}, static_cast<std::uint64_t>(value));
  }
  ArgumentList& number(double value);
  void launch(const runtime::LoadedKernel& kernel, toolchain::CUstream stream) const;

 private:
  ArgumentList& add(kiln_arg_type type, std::uint64_t bits) {
    types_.push_back(type);
    bits_.push_back(bits);
    return *this;
  }
  std::vector<kiln_arg_type> types_;
  std::vector<std::uint64_t> bits_;
};

}  // namespace kiln::cli
