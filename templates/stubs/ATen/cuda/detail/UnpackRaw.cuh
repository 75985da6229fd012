#pragma once
#include <ATen/cuda/PhiloxCudaState.h>

#include <tuple>

namespace at {
namespace cuda {
namespace philox {

/// The seed and the offset for curand_init, in this order.
__host__ __device__ __forceinline__ std::tuple<uint64_t, uint64_t> unpack(at::PhiloxCudaState state) {
  if (!state.captured_) return std::make_tuple(state.seed_.val, state.offset_.val);
  return std::make_tuple(static_cast<uint64_t>(*state.seed_.ptr),
                         static_cast<uint64_t>(*state.offset_.ptr + state.offset_intragraph_));
}

}  // namespace philox
}  // namespace cuda
}  // namespace at
