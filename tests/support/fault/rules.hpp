// The rules that say which calls fail, and how. Uses no C++ library: this is preloaded into other programs.
#pragma once

#include <cstdint>

namespace kiln::fault {

enum class Call : std::uint32_t {
  pwrite,
  pwritev,
  write,
  writev,
  fdatasync,
  fsync,
  msync,
  ftruncate,
  rename,
  link,
  unlink,
  mkdir,
  create,
  lock,
  unlock,
  send,
  mmap,
  pread,
};

enum class Action { none, fail, fail_after, half, kill, kill_after, kill_half, stop, delay };

struct Verdict {
  Action action = Action::none;
  int value = 0;  // an errno, or milliseconds
};

/// Returns the fault for this call. A kill, stop or delay that comes before the call has already happened.
/// `fd` is -1 when `path` names the file.
Verdict judge(Call call, int fd, const char* path = nullptr) noexcept;
[[noreturn]] void die() noexcept;

/// Writes through `fd` are synced when they return (O_DSYNC).
bool writes_through(int fd) noexcept;
/// The path of an open file; empty when the file has none.
void path_of(int fd, char (&path)[4096]) noexcept;

}  // namespace kiln::fault
