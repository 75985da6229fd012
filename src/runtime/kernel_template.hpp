// A template bound to a device and context: from a caller's values to a ready kernel.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/loaded_kernel.hpp"
#include "runtime/ready_table.hpp"

namespace kiln::runtime {

class Service;

/// What a template's kernels are for. Without a driver: compile only.
struct Target {
  const toolchain::Driver* driver = nullptr;
  toolchain::CUcontext context = nullptr;
  toolchain::DeviceFacts device;
  base::Arch arch;
};

struct GetRequest {
  base::Deadline deadline = base::Deadline::never();
  std::optional<toolchain::CUstream> stream;
  source::Which which = source::Which::kernel;
};

class KernelTemplate {
 public:
  KernelTemplate(Service& service, std::shared_ptr<const source::Template> origin, Target target);

  /// Throws CompileError and Error.
  LoadedKernel& get(std::span<const Value> values, const GetRequest& request);
  /// The ready kernel or null.
  LoadedKernel* try_get(std::span<const Value> values) const noexcept;
  /// The image only.
  Obtained compile(std::span<const Value> values);

  const source::Template& origin() const noexcept { return *origin_; }
  const std::shared_ptr<const source::Template>& shared_origin() const noexcept { return origin_; }
  const Target& target() const noexcept { return target_; }

 private:
  bool pack(std::span<const Value> values, PackedParameters& out) const noexcept;
  LoadedKernel& make_ready(std::span<const Value> values, const PackedParameters* packed,
                           const GetRequest& request);
  std::unique_ptr<LoadedKernel> load(const source::Instantiation& unit, ObtainOptions options);
  void refuse_in_capture(const GetRequest& request, const source::Resolved& resolved) const;

  Service& service_;
  const std::shared_ptr<const source::Template> origin_;
  const Target target_;
  ReadyTable ready_, ready_references_;
  std::mutex loading_;
  std::map<std::pair<source::Which, std::string>, std::unique_ptr<LoadedKernel>>
      kernels_;  // by resolved specialisation
};

}  // namespace kiln::runtime
