// One specialisation on generated data: the values of its arguments, and sets of buffers to launch it on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/service/service.hpp"
#include "tools/kiln/run/argument_list.hpp"
#include "tools/kiln/run/call_values.hpp"
#include "tools/kiln/run/device.hpp"
#include "tools/kiln/run/fill.hpp"
#include "tools/kiln/run/work_list.hpp"

namespace kiln::cli {

/// Buffers of one launch, one for each argument; null when the argument is no pointer or does not exist.
using BufferSet = std::vector<Buffer>;

/// Makes the buffers of a call, fills them, and launches a kernel on them.
class RunCase {
 public:
  /// Resolves every argument's value and every buffer's size. `exports` are the image's exports. Throws Error
  /// as CallValues does, and when a buffer would be empty or its size is unknown.
  RunCase(runtime::Service& service, PrimaryContext& gpu, runtime::KernelTemplate& opened,
          const source::Resolved& resolved, const GivenArguments& given,
          const std::vector<compile::ExportFact>& exports = {});

  /// Makes new buffers. Inputs are filled from `seed` as the manifest says, and outputs are poisoned.
  BufferSet make_buffers(std::uint64_t seed);
  /// Launches with the case's values. `addresses` has one entry for each argument.
  void launch(const runtime::LoadedKernel& kernel, const std::vector<toolchain::CUdeviceptr>& addresses,
              toolchain::CUstream stream) const;
  static std::vector<toolchain::CUdeviceptr> addresses_of(const BufferSet& buffers);

  const source::Manifest& manifest() const noexcept {
    return variant_for(opened_.origin().manifest, resolved_.arch);
  }
  const CallValues& values() const noexcept { return values_; }
  Dtype dtype_of(std::size_t argument) const;
  std::uint64_t elements_of(std::size_t argument) const { return elements_[argument]; }
  bool is_written(std::size_t argument) const;
  /// Bytes of one set of buffers.
  std::uint64_t set_bytes() const noexcept;

  /// Opens one of kiln's own kernels (kiln_fill, kiln_widen, kiln_compare, kiln_stream).
  const runtime::LoadedKernel& own_kernel(const std::string& name, std::vector<Value> values) const;
  PrimaryContext& gpu() const noexcept { return gpu_; }

 private:
  void size_buffers();
  /// True when kiln itself makes the argument's data: a work list, or its workspace.
  bool is_of_work_list(std::size_t argument) const noexcept;
  [[noreturn]] void refuse_empty(const source::ArgumentSpec& argument, std::size_t dimension,
                                 std::int64_t extent) const;
  void fill(std::size_t argument, Buffer& buffer, std::uint64_t seed);
  void fill_by_kernel(std::size_t argument, Buffer& buffer, std::uint64_t seed);
  void fill_from_host(std::size_t argument, Buffer& buffer, std::uint64_t seed) const;
  void upload(const Buffer& buffer, const void* data, std::size_t bytes, const std::string& what) const;

  runtime::Service& service_;
  PrimaryContext& gpu_;
  runtime::KernelTemplate& opened_;
  const source::Resolved resolved_;
  const CallValues values_;
  std::vector<std::uint64_t> elements_;  // by argument; 0: no buffer
  std::map<std::size_t, FillKernel> fill_kernels_;
  std::optional<RunWorkList> work_list_;  ///< for the latest buffers
};

}  // namespace kiln::cli
