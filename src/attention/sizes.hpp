// The limits of the work lists of an attention kernel, and the size of a work list within them.
#pragma once

#include <cstdint>

#include "templates/work_list/shape.h"

namespace kiln::attention {

using KernelShape = work_list::Shape;

/// The limits for every work list that is written to one buffer.
struct Limits {
  std::int64_t max_requests = 0;
  std::int64_t max_tokens = 0;  ///< q tokens of all requests together
  std::int64_t kv_heads = 0;
  std::int64_t workers = 0;  ///< blocks of the grid
  bool on_device = false;    ///< the device may write further lists to the buffer
};
inline constexpr std::int64_t kMaxWorkers = 65535;

/// The 32-bit words of a buffer that holds every work list within the limits. Throws Error(invalid_argument)
/// for limits and shapes that are out of range.
std::int64_t work_list_words(const KernelShape& shape, const Limits& limits);

}  // namespace kiln::attention
