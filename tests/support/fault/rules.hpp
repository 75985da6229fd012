// Which calls fail how. No C++ library: this is preloaded into other programs.
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
  int value = 0;  // errno or milliseconds
};

/// What happens to this call. Has already killed, stopped or slept where that comes before the call.
/// `fd`: -1 when `path` names the file.
Verdict judge(Call call, int fd, const char* path = nullptr) noexcept;
[[noreturn]] void die() noexcept;

/// Whether writes through `fd` are synced when they return.
bool writes_through(int fd) noexcept;
/// The path of an open file; empty when it has none.
void path_of(int fd, char (&path)[4096]) noexcept;

}  // namespace kiln::fault
