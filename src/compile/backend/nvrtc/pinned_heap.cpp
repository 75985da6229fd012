#include "compile/backend/nvrtc/pinned_heap.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace kiln::compile {
namespace {

// The mmap calls of static initialisers read these variables, so they must not need a constructor.
constinit std::atomic<std::size_t> awaited{0};  ///< 0: no call is awaited
constinit std::atomic<bool> pinned{false};
constinit std::atomic<std::size_t> reserved{0};

void* system_mmap(void* at, std::size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  // Returns -1 (MAP_FAILED) and sets errno, as mmap does.
  return reinterpret_cast<void*>(::syscall(SYS_mmap, at, bytes, protection, flags, fd, offset));
}

bool in_heap(const void* at, std::size_t bytes) noexcept {
  const auto from = reinterpret_cast<std::uintptr_t>(at);
  return pinned && from >= kPinnedHeapAt && bytes <= reserved && from - kPinnedHeapAt <= reserved - bytes;
}

/// NVRTC empties its heap by mapping it again, and fills it by mapping a header's file in pieces of 64 KiB. A
/// compile with CUB's header writes to half of its 43,000 pages, with a fault and a copy for each. Reading
/// into huge pages takes 100 faults, and the compile takes 0.7 of the time. Null: the caller maps as NVRTC
/// asked.
void* map_in_heap(void* at, std::size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  if ((flags & MAP_ANONYMOUS) != 0) {
    void* got = system_mmap(at, bytes, protection, flags, fd, offset);
    if (got != MAP_FAILED) ::madvise(got, bytes, MADV_HUGEPAGE);
    return got;
  }
  if ((flags & MAP_PRIVATE) == 0) return nullptr;
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n =
        ::pread(fd, static_cast<char*>(at) + done, bytes - done, offset + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return nullptr;
    done += static_cast<std::size_t>(n);
  }
  return at;
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
      ::madvise(got, bytes, MADV_HUGEPAGE);
      return got;
    }
  }
  if ((flags & MAP_FIXED) != 0 && in_heap(at, bytes)) {
    if (void* got = map_in_heap(at, bytes, protection, flags, fd, offset)) return got;
  }
  return system_mmap(at, bytes, protection, flags, fd, offset);
}

bool reserve_pinned_heap(std::size_t bytes) noexcept {
  if (reserved != 0 || bytes == 0) return reserved == bytes && bytes != 0;
  void* const wanted = reinterpret_cast<void*>(kPinnedHeapAt);
  void* got = system_mmap(wanted, bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return false;
  if (got != wanted) {  // Linux before 4.17 treats the address as a hint only
    ::munmap(got, bytes);
    return false;
  }
  reserved = bytes;
  awaited = bytes;
  return true;
}

bool heap_is_pinned() noexcept { return pinned; }

}  // namespace kiln::compile
