// Probes of the driver and the devices, and a load of an image on the first device.
#include "tools/kiln/doctor/driver.hpp"
#include "tools/kiln/doctor/empty_kernel.hpp"

#include <cstdlib>

#include "kiln/error.hpp"
#include "runtime/launch/library.hpp"
#include "toolchain/driver.hpp"
#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {
namespace {

using Status = Finding::Status;
using toolchain::Driver;

/// Retains a device's primary context and keeps it current in this thread while it lives.
class PrimaryContext {
 public:
  PrimaryContext(const Driver& driver, int ordinal) : driver_(driver) {
    driver_.check(driver_.cuDeviceGet(&device_, ordinal), "cuDeviceGet");
    toolchain::CUcontext context = nullptr;
    driver_.check(driver_.cuDevicePrimaryCtxRetain(&context, device_), "cuDevicePrimaryCtxRetain");
    driver_.cuCtxSetCurrent(context);
  }
  ~PrimaryContext() {
    driver_.cuCtxSetCurrent(nullptr);
    driver_.cuDevicePrimaryCtxRelease(device_);
  }
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

 private:
  const Driver& driver_;
  toolchain::CUdevice device_ = 0;
};

void probe_load(const Driver& driver, const toolchain::DeviceFacts& device, const EmptyKernel& kernel,
                Findings& out) {
  if (device.arch.name() != kernel.arch) {
    out.push_back({"load", Status::note,
                   "not tried: the probe kernel was compiled for " + kernel.arch + ", but device 0 is " +
                       device.arch.name()});
    return;
  }
  const PrimaryContext context(driver, device.ordinal);
  std::string refusal;
  const auto library =
      runtime::Library::load(driver, kernel.image, {{kernel.lowered_name}, {}}, "probing", refusal);
  if (!library) {
    out.push_back(
        {"load", Status::error, "the driver refuses the image of the probe kernel: " + refusal,
         "update the driver, or set KILN_CUDA_HOME to a toolkit that is not newer than the driver"});
    return;
  }
  out.push_back({"load", Status::ok, "device 0 loads the probe kernel"});
  const toolchain::LaunchConfig launch;
  const char* call = "cuLaunchKernelEx";
  int result = driver.cuLaunchKernelEx(&launch, library->function(), nullptr, nullptr);
  if (result == toolchain::CUDA_SUCCESS) call = "cuCtxSynchronize", result = driver.cuCtxSynchronize();
  if (result == toolchain::CUDA_SUCCESS)
    out.push_back({"launch", Status::ok, "device 0 runs the probe kernel"});
  else
    out.push_back({"launch", Status::error, std::string(call) + " returned " + driver.describe(result),
                   "look for Xid errors in the log of the Linux kernel, and reset or replace the device"});
}

/// An image of a newer CUDA major version does not load; an image of the driver's own major version does.
Finding driver_finding(int version, const std::optional<EmptyKernel>& kernel) {
  const int major = version / 1000;
  Finding out{"driver", Status::ok,
              "CUDA driver " + std::to_string(major) + '.' + std::to_string(version % 1000 / 10)};
  if (kernel && std::atoi(kernel->compiler_version.c_str()) > major) {
    out.status = Status::warning;
    out.text +=
        ", but NVRTC is " + kernel->compiler_version + ": images of a newer major version may not load";
    out.fix = "update the driver, or set KILN_CUDA_HOME to a toolkit of CUDA " + std::to_string(major);
  }
  return out;
}

}  // namespace

void probe_driver(const std::optional<EmptyKernel>& kernel, Findings& out) {
  const Driver* driver = Driver::get();
  if (!driver) {
    out.push_back(
        {"driver", Status::note, Driver::load_error() + "; kiln can compile and cache here, but not launch"});
    return;
  }
  int version = 0, count = 0;
  driver->cuDriverGetVersion(&version);
  const Finding found = driver_finding(version, kernel);
  if (const int result = driver->cuInit(0); result != toolchain::CUDA_SUCCESS) {
    const bool no_device = result == toolchain::CUDA_ERROR_NO_DEVICE;
    out.push_back({"driver", no_device ? Status::note : Status::error,
                   found.text + ", but cuInit returned " + driver->describe(result),
                   no_device ? "" : "check nvidia-smi and the container's access to the device"});
    return;
  }
  driver->cuDeviceGetCount(&count);
  out.push_back(found);
  if (count == 0)
    out.push_back({"gpu", Status::note, "no device: kiln can compile and cache here, but not launch"});
  for (int i = 0; i < count; ++i) {
    try {
      const toolchain::DeviceFacts device = toolchain::device_facts(*driver, i);
      out.push_back({"gpu", Status::ok,
                     std::to_string(i) + ": " + device.name + ", " + device.arch.name() + ", " +
                         std::to_string(device.sms) + " SMs"});
      if (i == 0 && kernel) probe_load(*driver, device, *kernel, out);
    } catch (const Error& error) {
      out.push_back({"gpu", Status::error, std::to_string(i) + ": " + error.what()});
    }
  }
}

}  // namespace kiln::cli
