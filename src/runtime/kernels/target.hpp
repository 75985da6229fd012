// The target of a template's kernels: a device, and the context that they are loaded in.
#pragma once

#include <cstdint>
#include <string>

#include "base/arch.hpp"
#include "runtime/config/config.hpp"
#include "toolchain/driver.hpp"

namespace kiln::runtime {

/// driver == nullptr: the template only compiles.
struct Target {
  const toolchain::Driver* driver = nullptr;
  toolchain::CUcontext context = nullptr;
  std::uint64_t context_id = 0;  ///< tells contexts of one address apart; 0: the driver cannot say
  toolchain::DeviceFacts device;
  base::Arch arch;

  /// Throws Error(driver) when the context was destroyed. Driver 580 takes such a handle in cuCtxSetCurrent
  /// and crashes later, but cuCtxGetId reports it.
  void check_context(const std::string& doing) const;
};

/// `device`: KILN_DEVICE_NONE, KILN_DEVICE_CURRENT or the ordinal of the current context's device. Another
/// arch than the device's needs KILN_DEVICE_NONE. A target without a device has the device name `tuned_for`:
/// it takes the choices that were tuned on that device. Throws Error.
Target bind(const Config& config, int device, const std::string& arch, const std::string& tuned_for);

/// The arch for work without a device: `arch`, else the configured one, else sm_90a.
base::Arch default_arch(const Config& config, const std::string& arch);

/// Makes the target's context current, and restores the previous one on destruction.
class CurrentContext {
 public:
  CurrentContext(const Target& target, const std::string& doing);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const toolchain::Driver* driver_;
  toolchain::CUcontext before_ = nullptr;
};

}  // namespace kiln::runtime
