// Owners of driver handles for `kiln run`: device memory and timing.
#pragma once

#include <cstdint>
#include <utility>

#include "toolchain/driver.hpp"

namespace kiln::cli {

/// Initialises the driver and makes the primary context of device `ordinal` current. The
/// destructor releases it.
class PrimaryContext {
 public:
  /// Throws Error(no_driver | driver).
  explicit PrimaryContext(int ordinal);
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  const toolchain::Driver& driver() const noexcept { return driver_; }
  const toolchain::DeviceFacts& facts() const noexcept { return facts_; }

 private:
  const toolchain::Driver& driver_;
  toolchain::DeviceFacts facts_;
};

/// Device memory between two canaries.
class Buffer {
 public:
  Buffer() = default;
  /// Allocates memory with every byte 0xff, which is NaN in all floating types. Throws Error(driver).
  Buffer(const toolchain::Driver& driver, std::uint64_t bytes);
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer();
  toolchain::CUdeviceptr address() const noexcept { return base_ ? base_ + kCanary : 0; }
  std::uint64_t bytes() const noexcept { return bytes_; }
  void copy_from(const Buffer& other);
  /// True when both canaries are unchanged: nothing was written outside the buffer.
  bool intact() const;

 private:
  static constexpr std::uint64_t kCanary = 4096;  // a multiple of the alignment that cuMemAlloc gives
  void swap(Buffer& other) noexcept {
    std::swap(driver_, other.driver_), std::swap(base_, other.base_), std::swap(bytes_, other.bytes_);
  }
  const toolchain::Driver* driver_ = nullptr;
  toolchain::CUdeviceptr base_ = 0;
  std::uint64_t bytes_ = 0;
};

/// Owns a stream and two events. It cannot be moved.
class Timer {
 public:
  explicit Timer(const toolchain::Driver& driver);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  toolchain::CUstream stream() const noexcept { return stream_; }
  /// Captures what `record` launches on stream() into a graph, replays it `replays` times after `warmups`,
  /// and returns the median time of one replay in microseconds.
  template <class Record>
  double median_us(Record&& record, int warmups, int replays) {
    capture(record);
    return replay(warmups, replays);
  }
  /// Does so in two steps, for timers that take turns.
  template <class Record>
  void capture(Record&& record) {
    begin();
    record();
    end();
  }
  /// REQUIRES: something was captured.
  double replay(int warmups, int replays);

 private:
  void begin();
  void end();
  const toolchain::Driver& driver_;
  toolchain::CUstream stream_ = nullptr;
  toolchain::CUevent start_ = nullptr, stop_ = nullptr;
  toolchain::CUgraphExec exec_ = nullptr;
};

}  // namespace kiln::cli
