#include "compile/pinned_heap.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace kiln::compile {
namespace {

// Read by mmap calls of static initialisers: no constructor may be needed.
constinit std::atomic<std::size_t> awaited{0};  ///< 0: no call is awaited
constinit std::atomic<bool> pinned{false};
constinit std::size_t reserved = 0;

void* system_mmap(void* at, std::size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  // -1 (MAP_FAILED) with errno set, as of mmap itself.
  return reinterpret_cast<void*>(::syscall(SYS_mmap, at, bytes, protection, flags, fd, offset));
}

}  // namespace

void* pinning_mmap(void* at, std::size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  std::size_t expected = bytes;
  if (at == nullptr && bytes != 0 && (flags & MAP_ANONYMOUS) != 0 &&
      awaited.compare_exchange_strong(expected, 0)) {
    void* got = system_mmap(reinterpret_cast<void*>(kPinnedHeapAt), bytes, protection, flags | MAP_FIXED, fd,
                            offset);  // over the reservation
    if (got != MAP_FAILED) {
      pinned = true;
      return got;
    }
  }
  return system_mmap(at, bytes, protection, flags, fd, offset);
}

bool reserve_pinned_heap(std::size_t bytes) noexcept {
  if (reserved != 0 || bytes == 0) return reserved == bytes && bytes != 0;
  void* const wanted = reinterpret_cast<void*>(kPinnedHeapAt);
  void* got = system_mmap(wanted, bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return false;
  if (got != wanted) {  // Linux before 4.17 takes the address as a wish
    ::munmap(got, bytes);
    return false;
  }
  reserved = bytes;
  awaited = bytes;
  return true;
}

bool heap_is_pinned() noexcept { return pinned; }

}  // namespace kiln::compile
