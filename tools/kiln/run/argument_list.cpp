#include "tools/kiln/run/argument_list.hpp"

#include <cstring>

namespace kiln::cli {

ArgumentList& ArgumentList::number(double value) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, 8);
  return add({KILN_ARG_FLOAT, 8}, bits);
}

void ArgumentList::launch(const runtime::LoadedKernel& kernel, toolchain::CUstream stream) const {
  std::vector<const void*> data;
  for (const std::uint64_t& bits : bits_) data.push_back(&bits);
  // Uses prepare() only. launch() remembers checked type arrays by address, and a new array at each call
  // would defeat that.
  runtime::PreparedLaunch prepared;
  kernel.prepare(types_.data(), data.data(), types_.size(), prepared);
  kernel.launch_prepared(stream, prepared);
}

}  // namespace kiln::cli
