// Kernels of a template and its [reference] on a GPU, for tests that compare both with the CPU.
#pragma once
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kiln/error.hpp"
#include "library/work_lists.hpp"
#include "runtime/service/service.hpp"
#include "support/gpu.hpp"

namespace kiln::testing {

class KernelTest : public GpuTest {
 protected:
  struct Pair {
    const runtime::LoadedKernel *kernel, *reference;
  };

  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped())
      service_ = std::make_unique<runtime::Service>(Options{}, runtime::default_memo_file(),
                                                    runtime::Events{}, library::work_lists());
  }
  void TearDown() override {
    service_.reset();
    GpuTest::TearDown();
  }
  const runtime::LoadedKernel& get_one(const std::string& name, const std::vector<NamedValue>& named,
                                       source::Which which = source::Which::kernel) {
    auto& opened = service_->open(name, KILN_DEVICE_CURRENT, "");
    runtime::GetRequest request;
    request.which = which;
    return opened.get(source::positional(opened.origin().manifest, named), request);
  }
  Pair get(const std::string& name, const std::vector<NamedValue>& named) {
    return {&get_one(name, named), &get_one(name, named, source::Which::reference)};
  }
  template <class... Args>
  void launch(const runtime::LoadedKernel& kernel, Args... args) {
    const void* data[] = {&args...};
    kernel.launch(nullptr, detail::ArgTypes<Args...>::value, data, sizeof...(Args));
    synchronize();
  }
  static void* pointer(toolchain::CUdeviceptr address) { return reinterpret_cast<void*>(address); }
  template <class T>
  static void* pointer(const DeviceArray<T>& array) {
    return pointer(array.address());
  }
  static void* null() { return nullptr; }

  /// ||got - want|| / ||want||; infinite when any element is not finite.
  static double relative_rms(const std::vector<double>& got, const std::vector<double>& want) {
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (!(std::isfinite(got[i]) && std::isfinite(want[i]))) return INFINITY;
      error += (got[i] - want[i]) * (got[i] - want[i]);
      norm += want[i] * want[i];
    }
    return std::sqrt(error / norm);
  }
  static std::vector<double> widened(const std::vector<std::uint16_t>& in) {
    std::vector<double> out;
    for (const auto v : in) out.push_back(bf16_to_float(v));
    return out;
  }

  std::unique_ptr<runtime::Service> service_;
};

}  // namespace kiln::testing
