// The heap of NVRTC's precompiled headers at one address in every worker.
//
// A precompiled header is an image of that heap, pointers included: it can only be used where the heap lies
// at the address of its creation. NVRTC gets the heap from one mmap(nullptr, size) of its own, at its first
// compile that creates or uses a header. The worker executable exports an mmap of its own (tools/worker.cpp),
// which the loader binds NVRTC's call to, and which answers that one call with the fixed range. Undocumented,
// so nothing relies on it: where the call is not seen, or the range is taken, there are no precompiled
// headers.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace kiln::compile {

/// 64 GiB: far above a program that is linked low, far below where Linux puts programs and mappings on
/// x86-64 (47 bits) and arm64 (39 to 48 bits), randomised or not.
inline constexpr std::uintptr_t kPinnedHeapAt = 0x10'0000'0000;

/// Reserves the range, so that nothing else takes it, and waits for NVRTC's call. False when the range is
/// taken, when memory limits forbid it, or when another size was reserved before. Not thread-safe: one
/// compile at a time.
bool reserve_pinned_heap(std::size_t bytes) noexcept;
/// NVRTC's heap lies in the range: its call came, and came through our mmap.
bool heap_is_pinned() noexcept;

/// The body of the executable's mmap: callable before main, from any thread, sets errno as mmap does. Inside
/// the range a private mapping of a file is a copy of it, in huge pages where there are some.
void* pinning_mmap(void* at, std::size_t bytes, int protection, int flags, int fd, off_t offset) noexcept;

}  // namespace kiln::compile
