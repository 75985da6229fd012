#include "runtime/kernels/target.hpp"

#include "kiln/error.hpp"
#include "kiln/kiln.h"

namespace kiln::runtime {

using namespace toolchain;

namespace {

CUcontext current_context(const Driver& driver) {
  CUcontext out = nullptr;
  const CUresult got = driver.cuCtxGetCurrent(&out);
  if (got == CUDA_SUCCESS && out) return out;
  throw Error(Errc::no_driver,
              "no CUDA context is current in this thread" +
                  (got != CUDA_SUCCESS ? " (" + driver.describe(got) + ")" : std::string()) +
                  ": call cudaSetDevice, cuDevicePrimaryCtxRetain + cuCtxSetCurrent or the like first; "
                  "kiln creates no context");
}

}  // namespace

void Target::check_context(const std::string& doing) const {
  unsigned long long id = 0;
  CUresult result = driver->cuCtxGetId(context, &id);
  // Another context may have this address now.
  if (result == CUDA_SUCCESS && id != context_id) result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  driver->check(result, "cuCtxGetId", doing);
}

base::Arch default_arch(const Config& config, const std::string& arch) {
  const std::string& configured = config.get("arch");
  return base::Arch::parse(!arch.empty() ? arch : !configured.empty() ? configured : "sm_90a");
}

Target bind(const Config& config, int device, const std::string& arch, const std::string& tuned_for) {
  Target target;
  if (device == KILN_DEVICE_NONE) {
    target.arch = default_arch(config, arch);
    target.device.name = tuned_for;
    return target;
  }
  if (device < KILN_DEVICE_CURRENT)
    throw Error(Errc::invalid_argument, "device " + std::to_string(device) +
                                            " is neither an ordinal nor KILN_DEVICE_CURRENT or _NONE");
  const Driver* driver = Driver::get();
  if (!driver) {
    throw Error(Errc::no_driver,
                Driver::load_error() +
                    "; without a GPU, open the template for an arch (Device::none(\"sm_90a\"); "
                    "in Python arch=\"sm_90a\"), and compile()");
  }
  Driver::refuse_in_forked_child("opening a template");
  target.context = current_context(*driver);
  CUdevice ordinal = 0;
  driver->check(driver->cuCtxGetDevice(&ordinal), "cuCtxGetDevice");
  if (device >= 0 && device != ordinal) {
    throw Error(Errc::invalid_argument, "device " + std::to_string(device) +
                                            " was asked for, and the current context is on device " +
                                            std::to_string(ordinal));
  }
  unsigned long long id = 0;
  driver->check(driver->cuCtxGetId(target.context, &id), "cuCtxGetId");
  target.context_id = id;
  target.driver = driver;
  target.device = device_facts(*driver, ordinal);
  target.arch = target.device.arch;
  if (!arch.empty() && base::Arch::parse(arch) != target.arch)
    throw Error(Errc::invalid_argument, "arch " + arch + " was asked for, and the current device is " +
                                            target.arch.name() + "; another arch needs Device::none(arch)");
  return target;
}

CurrentContext::CurrentContext(const Target& target, const std::string& doing) : driver_(target.driver) {
  if (!driver_) return;
  target.check_context(doing);
  driver_->check(driver_->cuCtxGetCurrent(&before_), "cuCtxGetCurrent", doing);
  driver_->check(driver_->cuCtxSetCurrent(target.context), "cuCtxSetCurrent", doing);
}

CurrentContext::~CurrentContext() {
  if (driver_) driver_->cuCtxSetCurrent(before_);
}

}  // namespace kiln::runtime
