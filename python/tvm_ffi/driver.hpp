// The driver functions that make a device's primary context current.
#pragma once

namespace kiln::tvm_ffi {

/// While it lives, a context of the device is current: the thread's own, or else the device's primary context.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) noexcept;
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;

  /// Null, or why no context could be made current.
  const char* error() const noexcept { return error_; }

 private:
  bool pushed_ = false;
  const char* error_ = nullptr;
};

}  // namespace kiln::tvm_ffi
