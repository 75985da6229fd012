// The calls that launch_bench compares, and the driver, service and ready kernels that they need.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "kiln/kiln.hpp"
#include "toolchain/driver.hpp"

namespace kiln::bench {

constexpr int kThreads = 8;

struct World {
  base::TempDir cache{"kiln-launch-bench-"};
  const toolchain::Driver* driver = nullptr;
  bool fake = false;
  toolchain::CUcontext context = nullptr;
  std::unique_ptr<Service> service;
  std::unique_ptr<KernelTemplate> rms_norm_template;
  std::unique_ptr<Operator> rms_norm_operator;
  Kernel empty, rms_norm, act_and_mul, softmax, no_maps, two_maps, member;
  Family family;
  CUstream streams[kThreads] = {};
  void *out = nullptr, *in = nullptr, *weight = nullptr;

  World();
  void use_context() const { driver->check(driver->cuCtxSetCurrent(context), "cuCtxSetCurrent"); }
  void wait(int thread) const {
    if (!fake) driver->check(driver->cuStreamSynchronize(streams[thread]), "cuStreamSynchronize");
  }

 private:
  static void* control(const char* name);
  const toolchain::Driver* find_driver();
};

World& world();

struct Row {
  std::string name, floor;  ///< floor: the row that this row is compared with
  std::function<void(int calls, int thread)> call;
};

const std::vector<Row>& rows();

}  // namespace kiln::bench
