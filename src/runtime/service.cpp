#include "runtime/service.hpp"

#include "base/log.hpp"
#include "kiln/error.hpp"

namespace kiln::runtime {

using namespace toolchain;

Service::Service(const Options& options, const std::string& memo_file)
    : config_(Config::resolve(options)),
      mode_(config_.mode()),
      catalog_(config_.template_directories()),
      recorder_(config_.get("record")),
      pipeline_(config_, memo_file) {}

Service::~Service() = default;

base::Arch Service::default_arch(const std::string& arch) const {
  const std::string& configured = config_.get("arch");
  return base::Arch::parse(!arch.empty() ? arch : !configured.empty() ? configured : "sm_90a");
}

Target Service::bind(int device, const std::string& arch) const {
  Target target;
  if (device == KILN_DEVICE_NONE) {
    target.arch = default_arch(arch);
    return target;
  }
  const Driver* driver = Driver::get();
  if (!driver) {
    throw Error(Errc::no_driver, "no CUDA driver (" + Driver::load_error() +
                                     "); without a GPU, open with Device::none() and compile()");
  }
  const CUresult got = driver->cuCtxGetCurrent(&target.context);
  if (got != CUDA_SUCCESS || !target.context) {
    throw Error(Errc::no_driver,
                "no CUDA context is current in this thread" +
                    (got != CUDA_SUCCESS ? " (" + driver->describe(got) + ")" : std::string()) +
                    ": call cudaSetDevice, cuDevicePrimaryCtxRetain + cuCtxSetCurrent or the like first; "
                    "kiln makes none");
  }
  CUdevice ordinal = 0;
  driver->check(driver->cuCtxGetDevice(&ordinal), "cuCtxGetDevice");
  if (device >= 0 && device != ordinal) {
    throw Error(Errc::invalid_argument, "device " + std::to_string(device) +
                                            " was asked for, and the current context is on device " +
                                            std::to_string(ordinal));
  }
  target.driver = driver;
  target.device = device_facts(*driver, ordinal);
  target.arch = target.device.arch;
  return target;
}

KernelTemplate& Service::open(const std::string& name, int device, const std::string& arch) {
  Target target = bind(device, arch);
  pipeline_.expect_misses();  // the manifest is parsed meanwhile
  auto origin = catalog_.open(name);
  std::lock_guard lock(mutex_);
  auto& [seen, opened] = opened_[{name, target.context, target.arch.number}];
  if (seen != origin) {
    templates_.push_back(std::make_unique<KernelTemplate>(*this, origin, std::move(target)));
    opened = templates_.back().get();
    seen = std::move(origin);
  }
  return *opened;
}

void Service::seal() {
  sealed_ = true;
  if (mode_ != Mode::sealed)
    base::info("seal(): mode is not sealed, kernels that are not ready will still be made");
}

void Service::refuse_when_sealed(const Specialization& specialization) {
  if (!sealed_) return;
  if (mode_ == Mode::warn) base::warn("after the seal: " + specialization.to_string() + " was not ready");
  if (mode_ != Mode::sealed) return;
  ++pipeline_.counters().sealed_misses;
  std::string plan = "[[prewarm]]\ntemplate = \"" + specialization.template_name + '"';
  for (const Parameter& p : specialization.parameters) plan += '\n' + p.name + " = \"" + p.value + '"';
  throw Error(Errc::not_ready, "sealed: " + specialization.to_string() +
                                   " is not in memory; a plan for `kiln prewarm` that makes it ready:\n" +
                                   plan);
}

}  // namespace kiln::runtime
