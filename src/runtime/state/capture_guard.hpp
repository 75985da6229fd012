// The mark by which a thread says that it captures a stream (kiln_capture_begin).
#pragma once

namespace kiln::runtime {

inline thread_local int t_capture_depth = 0;
inline bool capturing_here() noexcept { return t_capture_depth > 0; }

}  // namespace kiln::runtime
