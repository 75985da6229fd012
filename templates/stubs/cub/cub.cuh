// <cub/cub.cuh> without its device-wide algorithms, which are host code. The functors of CUB 2, which CUB 3 has
// no more, stand at the end.
#pragma once
#include <cub/block/block_adjacent_difference.cuh>
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_rank.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/config.cuh>
#include <cub/thread/thread_load.cuh>
#include <cub/thread/thread_operators.cuh>
#include <cub/thread/thread_reduce.cuh>
#include <cub/thread/thread_scan.cuh>
#include <cub/thread/thread_store.cuh>
#include <cub/util_ptx.cuh>
#include <cub/util_type.cuh>
#include <cub/warp/warp_exchange.cuh>
#include <cub/warp/warp_load.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#include <cub/warp/warp_store.cuh>
#include <cuda/functional>

#if CCCL_MAJOR_VERSION >= 3
CUB_NAMESPACE_BEGIN
struct Sum {
  template <class T, class U>
  __host__ __device__ auto operator()(const T& a, const U& b) const {
    return a + b;
  }
};
struct Max {
  template <class T, class U>
  __host__ __device__ auto operator()(const T& a, const U& b) const {
    return a < b ? b : a;
  }
};
struct Min {
  template <class T, class U>
  __host__ __device__ auto operator()(const T& a, const U& b) const {
    return b < a ? b : a;
  }
};
CUB_NAMESPACE_END
#endif
