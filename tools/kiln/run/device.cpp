#include "tools/kiln/run/device.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "kiln/error.hpp"

namespace kiln::cli {

using namespace toolchain;

namespace {
constexpr const char* kNeedsGpu =
    "; launching needs a GPU; `kiln compile` and `kiln tune --dry-run` need none";

const Driver& loaded_driver() {
  const Driver* driver = Driver::get();
  if (!driver) throw Error(Errc::no_driver, Driver::load_error() + kNeedsGpu);
  const CUresult result = driver->cuInit(0);
  if (result != CUDA_SUCCESS) throw Error(Errc::no_driver, "cuInit: " + driver->describe(result) + kNeedsGpu);
  return *driver;
}
constexpr unsigned char kCanaryByte = 0xa5;
}  // namespace

PrimaryContext::PrimaryContext(int ordinal) : driver_(loaded_driver()) {
  int count = 0;
  driver_.check(driver_.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (ordinal < 0 || ordinal >= count) {
    throw Error(Errc::invalid_argument, "device " + std::to_string(ordinal) + ": expected an ordinal below " +
                                            std::to_string(count) + ", the number of GPUs of this machine");
  }
  CUcontext context = nullptr;
  driver_.check(driver_.cuDevicePrimaryCtxRetain(&context, ordinal), "cuDevicePrimaryCtxRetain");
  driver_.check(driver_.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  facts_ = device_facts(driver_, ordinal);
}

PrimaryContext::~PrimaryContext() { driver_.cuDevicePrimaryCtxRelease(facts_.ordinal); }

Buffer::Buffer(const Driver& driver, std::uint64_t bytes) : driver_(&driver), bytes_(bytes) {
  driver.check(driver.cuMemAlloc(&base_, bytes + 2 * kCanary), "cuMemAlloc",
               "allocating " + std::to_string(bytes) + " bytes");
  driver.check(driver.cuMemsetD8(base_, kCanaryByte, kCanary), "cuMemsetD8");
  driver.check(driver.cuMemsetD8(base_ + kCanary + bytes, kCanaryByte, kCanary), "cuMemsetD8");
  if (bytes) driver.check(driver.cuMemsetD8(address(), 0xff, bytes), "cuMemsetD8");
}

Buffer::~Buffer() {
  if (base_) driver_->cuMemFree(base_);
}

void Buffer::copy_from(const Buffer& other) {
  driver_->check(driver_->cuMemcpyDtoD(address(), other.address(), std::min(bytes_, other.bytes_)),
                 "cuMemcpyDtoD");
}

bool Buffer::intact() const {
  std::vector<unsigned char> edge(kCanary);
  for (const CUdeviceptr at : {base_, base_ + kCanary + bytes_}) {
    driver_->check(driver_->cuMemcpyDtoH(edge.data(), at, kCanary), "cuMemcpyDtoH");
    if (std::any_of(edge.begin(), edge.end(), [](unsigned char c) { return c != kCanaryByte; })) return false;
  }
  return true;
}

Timer::Timer(const Driver& driver) : driver_(driver) {
  driver.check(driver.cuStreamCreate(&stream_, 1), "cuStreamCreate");  // 1: CU_STREAM_NON_BLOCKING
  driver.check(driver.cuEventCreate(&start_, 0), "cuEventCreate");
  driver.check(driver.cuEventCreate(&stop_, 0), "cuEventCreate");
}

Timer::~Timer() {
  if (exec_) driver_.cuGraphExecDestroy(exec_);
  driver_.cuEventDestroy(start_);
  driver_.cuEventDestroy(stop_);
  driver_.cuStreamDestroy(stream_);
}

void Timer::begin() {
  driver_.check(driver_.cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED),
                "cuStreamBeginCapture");
}

void Timer::end() {
  CUgraph graph = nullptr;
  driver_.check(driver_.cuStreamEndCapture(stream_, &graph), "cuStreamEndCapture");
  if (exec_) driver_.cuGraphExecDestroy(std::exchange(exec_, nullptr));
  const CUresult result = driver_.cuGraphInstantiateWithFlags(&exec_, graph, 0);
  driver_.cuGraphDestroy(graph);
  driver_.check(result, "cuGraphInstantiate");
}

double Timer::replay(int warmups, int replays) {
  std::vector<float> times;
  for (int i = 0; i < warmups + replays; ++i) {
    driver_.check(driver_.cuEventRecord(start_, stream_), "cuEventRecord");
    driver_.check(driver_.cuGraphLaunch(exec_, stream_), "cuGraphLaunch");
    driver_.check(driver_.cuEventRecord(stop_, stream_), "cuEventRecord");
    driver_.check(driver_.cuEventSynchronize(stop_), "cuEventSynchronize", "replaying a graph");
    float ms = 0;
    driver_.check(driver_.cuEventElapsedTime(&ms, start_, stop_), "cuEventElapsedTime");
    if (i >= warmups) times.push_back(ms);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return 1000.0 * times[times.size() / 2];
}

}  // namespace kiln::cli
