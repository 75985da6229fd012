// Keeps the heap of NVRTC's precompiled headers at one address in every worker.
//
// A precompiled header is an image of that heap, pointers included. So it can only be used where the heap
// lies at the address of its creation. NVRTC gets the heap from one mmap(nullptr, size), at its first compile
// that creates or uses a header. The worker executable exports its own mmap (tools/worker.cpp). The loader
// binds NVRTC's call to it, and it answers that one call with the fixed range. This is not documented, so
// nothing relies on it. Where the call is not seen or the range is taken, no precompiled headers are used.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace kiln::compile {

/// 64 GiB: far above a program that is linked low, and far below the place where Linux puts programs and
/// mappings, randomised or not. That holds for x86-64 (47 bits) and arm64 (39 to 48 bits).
inline constexpr std::uintptr_t kPinnedHeapAt = 0x10'0000'0000;

/// Reserves the range, and waits for NVRTC's call. False when the range is taken, when memory
/// limits forbid it, or when another size was reserved before. Not thread-safe: a process may have
/// only one compile at a time.
bool reserve_pinned_heap(std::size_t bytes) noexcept;
/// True when NVRTC's heap lies in the range: NVRTC made its call, and our mmap got it.
bool heap_is_pinned() noexcept;

/// The body of the executable's mmap. It may be called before main and from any thread, and sets errno as
/// mmap does. Inside the range a private mapping of a file becomes a copy of the file, in huge pages
/// where there are some.
void* pinning_mmap(void* at, std::size_t bytes, int protection, int flags, int fd, off_t offset) noexcept;

}  // namespace kiln::compile
