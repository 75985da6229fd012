// Addresses in device memory as kernel arguments.
#pragma once

namespace kiln {
inline namespace v1 {

/// An address in device memory that the program keeps as a number, such as a CUdeviceptr.
/// Example: k(stream, DevicePtr(address), rows). A bare integer is refused where the kernel takes a pointer.
struct DevicePtr {
  constexpr DevicePtr() = default;
  constexpr explicit DevicePtr(unsigned long long where) noexcept : address(where) {}
  unsigned long long address = 0;
};

}  // namespace v1
}  // namespace kiln
