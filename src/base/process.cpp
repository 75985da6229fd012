#include "base/process.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

namespace kiln::base {
namespace {

// The pid in the upper half, a count in the lower; 0: not known yet.
using Generation = std::atomic<std::uint64_t>;

constinit std::atomic<Generation*> page{nullptr};
constinit Generation unwiped_page{0};  // for kernels that cannot wipe a page at a fork: the pid decides
constinit std::atomic<std::uint32_t> count{0};

// A child keeps descriptors from this number on; O_CLOEXEC still closes them at exec.
constexpr int kTableSize = 1 << 16;
constinit std::atomic<bool> ours[kTableSize] = {};
constinit std::atomic<int> highest{-1};

void close_inherited() noexcept {
  const int last = highest.load(std::memory_order_relaxed);
  for (int fd = 0; fd <= last; ++fd)
    if (ours[fd].exchange(false, std::memory_order_relaxed)) ::close(fd);
}

// QEMU's user mode accepts MADV_WIPEONFORK and does not wipe. A handler that ran earlier in this child may have made the
// child's own number, which stays.
void wipe_number_of_parent() noexcept {
  Generation* at = page.load(std::memory_order_relaxed);
  if (at->load(std::memory_order_relaxed) >> 32 != static_cast<std::uint64_t>(::getpid()))
    at->store(0, std::memory_order_relaxed);
}

void begin_child() noexcept {
  wipe_number_of_parent();
  close_inherited();
}

Generation* make_page() noexcept {
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Generation* made = &unwiped_page;
  if (memory != MAP_FAILED) {
    if (::madvise(memory, 4096, MADV_WIPEONFORK) == 0)
      made = new (memory) Generation{0};
    else
      ::munmap(memory, 4096);
  }
  Generation* expected = nullptr;
  if (!page.compare_exchange_strong(expected, made, std::memory_order_acq_rel)) {
    if (made != &unwiped_page) ::munmap(memory, 4096);
    return expected;
  }
  ::pthread_atfork(nullptr, nullptr, begin_child);
  return made;
}

}  // namespace

std::uint64_t process_generation() noexcept {
  Generation* at = page.load(std::memory_order_acquire);
  if (!at) at = make_page();
  std::uint64_t now = at->load(std::memory_order_acquire);
  const auto known = [at](std::uint64_t value) {
    return value != 0 && (at != &unwiped_page || value >> 32 == static_cast<std::uint64_t>(::getpid()));
  };
  while (!known(now)) {
    const std::uint64_t fresh = static_cast<std::uint64_t>(::getpid()) << 32 | (count.fetch_add(1) + 1);
    if (at->compare_exchange_strong(now, fresh, std::memory_order_acq_rel)) return fresh;
  }
  return now;
}

const std::atomic<std::uint64_t>& process_word() noexcept {
  process_generation();
  return *page.load(std::memory_order_acquire);
}

void close_at_fork(int fd) noexcept {
  if (fd < 0 || fd >= kTableSize) return;
  ours[fd].store(true, std::memory_order_relaxed);
  int seen = highest.load(std::memory_order_relaxed);
  while (seen < fd && !highest.compare_exchange_weak(seen, fd, std::memory_order_relaxed)) {
  }
}

void forget_at_fork(int fd) noexcept {
  if (fd >= 0 && fd < kTableSize) ours[fd].store(false, std::memory_order_relaxed);
}

}  // namespace kiln::base
