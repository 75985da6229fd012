// kiln-worker: the process that runs NVRTC for a host process. kiln starts it; users do not.
#include <sys/types.h>

#include <cstddef>

#include "compile/backend/nvrtc/pinned_heap.hpp"
#include "compile/worker/main.hpp"

// A sanitizer has its own mmap, so sanitized builds have no precompiled headers.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" [[gnu::visibility("default")]] void* mmap(void* at, std::size_t bytes, int protection, int flags,
                                                     int fd, off_t offset) noexcept {
  return kiln::compile::pinning_mmap(at, bytes, protection, flags, fd, offset);
}
#endif

int main(int argc, char** argv) { return kiln::compile::worker_main(argc, argv); }
