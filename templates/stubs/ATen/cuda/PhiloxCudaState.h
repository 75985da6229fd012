// The state of PyTorch's random number generator, which is passed to kernels by value.
#pragma once
#include <torch/stub.h>
#include <torch/version.h>

namespace at {

struct PhiloxCudaState {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 10)
  using IntragraphOffset = uint64_t;
#else
  using IntragraphOffset = uint32_t;
#endif
  union Payload {
    uint64_t val;
    int64_t* ptr;
  };

  PhiloxCudaState() = default;

  Payload seed_{}, offset_{};
  IntragraphOffset offset_intragraph_ = 0;
  bool captured_ = false;  // the payloads are pointers, because the kernel is launched by a CUDA graph
};

}  // namespace at
