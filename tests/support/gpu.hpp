// A real GPU for tests labelled gpu: primary context and typed device arrays.
// Without a GPU the tests skip with a message.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "toolchain/driver.hpp"

namespace kiln::testing {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    driver_ = toolchain::Driver::get();
    if (!driver_ || driver_->cuInit(0) != 0) GTEST_SKIP() << "no GPU on this machine";
    ASSERT_EQ(driver_->cuDevicePrimaryCtxRetain(&context_, 0), 0);
    ASSERT_EQ(driver_->cuCtxSetCurrent(context_), 0);
  }
  void TearDown() override {
    if (context_) driver_->cuDevicePrimaryCtxRelease(0);
  }
  void synchronize() const { driver_->check(driver_->cuCtxSynchronize(), "cuCtxSynchronize"); }

  const toolchain::Driver* driver_ = nullptr;
  toolchain::CUcontext context_ = nullptr;
};

template <class T>
class DeviceArray {
 public:
  DeviceArray(const toolchain::Driver& driver, const std::vector<T>& host)
      : driver_(driver), size_(host.size()) {
    driver.check(driver.cuMemAlloc(&address_, size_ * sizeof(T)), "cuMemAlloc");
    driver.check(driver.cuMemcpyHtoD(address_, host.data(), size_ * sizeof(T)), "cuMemcpyHtoD");
  }
  ~DeviceArray() { driver_.cuMemFree(address_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  toolchain::CUdeviceptr address() const { return address_; }
  std::vector<T> host() const {
    std::vector<T> out(size_);
    driver_.check(driver_.cuMemcpyDtoH(out.data(), address_, size_ * sizeof(T)), "cuMemcpyDtoH");
    return out;
  }

 private:
  const toolchain::Driver& driver_;
  std::size_t size_;
  toolchain::CUdeviceptr address_ = 0;
};

/// A bf16 on the host is the upper half of a float.
inline float bf16_to_float(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float out;
  std::memcpy(&out, &wide, 4);
  return out;
}
inline std::uint16_t float_to_bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline std::vector<std::uint16_t> random_bf16(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<std::uint16_t> out(n);
  for (auto& v : out) v = float_to_bf16(normal(random));
  return out;
}

}  // namespace kiln::testing
