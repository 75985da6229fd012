#pragma once
#include <cuda_runtime_api.h>

namespace rmm {
class cuda_stream_view {
 public:
  constexpr cuda_stream_view() = default;
  __host__ __device__ constexpr cuda_stream_view(cudaStream_t stream) : stream_(stream) {}
  __host__ __device__ constexpr cudaStream_t value() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};
template <class T>
class device_uvector;
template <class T>
class device_scalar;
class device_buffer;
}  // namespace rmm
