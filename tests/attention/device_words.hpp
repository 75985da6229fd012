// The kernels' code that reads the words of a plan, compiled for the host.
#pragma once

#include <algorithm>

#define __host__
#define __device__
#define __forceinline__ inline
namespace kiln {
using std::max, std::min;  // built into device compilers
}
#include "templates/attention/words.cuh"
#undef __host__
#undef __device__
#undef __forceinline__

namespace kiln {
inline bool operator==(const AttentionRequest& a, const AttentionRequest& b) {
  return a.qo_begin == b.qo_begin && a.qo_len == b.qo_len && a.kv_base == b.kv_base && a.kv_len == b.kv_len;
}
}  // namespace kiln
