// The functions that replace libc's. Each asks the rules, makes the system call itself, and records it.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "fault.hpp"
#include "recorder.hpp"
#include "rules.hpp"

namespace kiln::fault {
namespace {

/// Applies the verdict to `real`, which makes the system call.
template <class Real>
long carry_out(const Verdict& verdict, Real&& real) noexcept {
  if (verdict.action == Action::fail) {
    errno = verdict.value;
    return -1;
  }
  const long result = real();
  if (verdict.action == Action::kill_after) die();
  if (verdict.action == Action::fail_after) {
    errno = verdict.value;
    return -1;
  }
  return result;
}

/// All four write calls. `offset` is -1 for write and writev, which use and move the file's own offset.
ssize_t write_buffers(Call call, int fd, const iovec* buffers, int count, off_t offset) noexcept {
  constexpr int kMaxBuffers = 1024;
  const Verdict verdict = judge(call, fd);
  iovec halved[kMaxBuffers];
  const bool half = verdict.action == Action::half || verdict.action == Action::kill_half;
  if (half && count <= kMaxBuffers) {
    std::size_t whole = 0;
    for (int i = 0; i < count; ++i) whole += buffers[i].iov_len;
    std::size_t left = whole / 2;
    for (int i = 0; i < count; ++i) {
      halved[i] = {buffers[i].iov_base, std::min(left, buffers[i].iov_len)};
      left -= halved[i].iov_len;
    }
    buffers = halved;
  }
  return carry_out(verdict, [&] {
    const bool record = recording();
    const long at = offset >= 0 || !record ? offset : ::syscall(SYS_lseek, fd, 0L, SEEK_CUR);
    const long result = offset >= 0 ? ::syscall(SYS_pwritev, fd, buffers, count, offset, 0L)
                                    : ::syscall(SYS_writev, fd, buffers, count);
    const int saved = errno;
    if (record && result > 0 && at >= 0)
      record_write(fd, buffers, count, at, static_cast<std::size_t>(result),
                   verdict.action == Action::fail_after);
    if (verdict.action == Action::kill_half) die();
    errno = saved;
    return result;
  });
}

int sync(Call call, int fd, long number) noexcept {
  const long result = carry_out(judge(call, fd), [&] { return ::syscall(number, fd); });
  const int saved = errno;
  if (recording()) record_of(result == 0 ? Kind::sync : Kind::sync_failed, fd);
  errno = saved;
  return static_cast<int>(result);
}

int truncate_file(int fd, off_t length) noexcept {
  return static_cast<int>(carry_out(judge(Call::ftruncate, fd), [&] {
    const long result = ::syscall(SYS_ftruncate, fd, length);
    if (recording() && result == 0) record_of(Kind::truncate, fd, static_cast<std::uint64_t>(length));
    return result;
  }));
}

int change_names(Call call, Kind kind, const char* from, const char* to, long number, int flags) noexcept {
  return static_cast<int>(carry_out(judge(call, -1, to ? to : from), [&] {
    const long result = to ? ::syscall(number, AT_FDCWD, from, AT_FDCWD, to, flags)
                           : ::syscall(number, AT_FDCWD, from, flags);
    if (recording() && result == 0) record_names(kind, from, to);
    return result;
  }));
}

int open_file(int directory, const char* path, int flags, unsigned mode) noexcept {
  struct stat st {};
  const bool absent = (flags & O_CREAT) != 0 && ::fstatat(directory, path, &st, 0) != 0;
  const Verdict verdict = absent ? judge(Call::create, -1, path) : Verdict{};
  return static_cast<int>(carry_out(verdict, [&] {
    const long fd = ::syscall(SYS_openat, directory, path, flags, mode);
    const int saved = errno;
    if (recording() && fd >= 0 && absent) record_created(static_cast<int>(fd));
    if (recording() && fd >= 0 && !absent && (flags & O_TRUNC) != 0)
      record_of(Kind::truncate, static_cast<int>(fd));
    errno = saved;
    return fd;
  }));
}

int open_temporary(const char* name, char* pattern, int flags) noexcept {
  using Mkostemp = int (*)(char*, int);
  const auto real = reinterpret_cast<Mkostemp>(::dlsym(RTLD_NEXT, name));
  return static_cast<int>(carry_out(judge(Call::create, -1, pattern), [&]() -> long {
    const int fd = real(pattern, flags);
    const int saved = errno;
    if (recording() && fd >= 0) record_created(fd);
    errno = saved;
    return fd;
  }));
}

void* map(void* address, std::size_t length, int protection, int flags, int fd, off_t offset) noexcept {
  const Verdict verdict = fd >= 0 ? judge(Call::mmap, fd) : Verdict{};
  return reinterpret_cast<void*>(carry_out(
      verdict, [&] { return ::syscall(SYS_mmap, address, length, protection, flags, fd, offset); }));
}

int control(int fd, int command, long argument) noexcept {
  if (command != F_OFD_SETLK) return static_cast<int>(::syscall(SYS_fcntl, fd, command, argument));
  const auto* lock = reinterpret_cast<const flock*>(argument);
  const Verdict verdict = judge(lock->l_type == F_UNLCK ? Call::unlock : Call::lock, fd);
  return static_cast<int>(carry_out(verdict, [&] { return ::syscall(SYS_fcntl, fd, command, argument); }));
}

/// Opens the file. A call that may create a file passes a mode as its last argument.
#define KILN_FAULT_OPEN(directory)            \
  unsigned mode = 0;                          \
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) { \
    va_list arguments;                        \
    va_start(arguments, flags);               \
    mode = va_arg(arguments, unsigned);       \
    va_end(arguments);                        \
  }                                           \
  return open_file(directory, path, flags, mode)

#define KILN_FAULT_CONTROL                       \
  va_list arguments;                             \
  va_start(arguments, command);                  \
  const long argument = va_arg(arguments, long); \
  va_end(arguments);                             \
  return control(fd, command, argument)

}  // namespace
}  // namespace kiln::fault

using namespace kiln::fault;

extern "C" {
KILN_FAULT_API ssize_t write(int fd, const void* bytes, size_t size) {
  const iovec buffer{const_cast<void*>(bytes), size};
  return write_buffers(Call::write, fd, &buffer, 1, -1);
}
KILN_FAULT_API ssize_t writev(int fd, const iovec* buffers, int count) {
  return write_buffers(Call::writev, fd, buffers, count, -1);
}
KILN_FAULT_API ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  const iovec buffer{const_cast<void*>(bytes), size};
  return write_buffers(Call::pwrite, fd, &buffer, 1, offset);
}
KILN_FAULT_API ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  return pwrite(fd, bytes, size, offset);
}
KILN_FAULT_API ssize_t pwritev(int fd, const iovec* buffers, int count, off_t offset) {
  return write_buffers(Call::pwritev, fd, buffers, count, offset);
}
KILN_FAULT_API ssize_t pwritev64(int fd, const iovec* buffers, int count, off64_t offset) {
  return pwritev(fd, buffers, count, offset);
}
KILN_FAULT_API ssize_t pread(int fd, void* bytes, size_t size, off_t offset) {
  const Verdict verdict = judge(Call::pread, fd);
  if (verdict.action == Action::half) size /= 2;
  return carry_out(verdict, [&] { return ::syscall(SYS_pread64, fd, bytes, size, offset); });
}
KILN_FAULT_API ssize_t pread64(int fd, void* bytes, size_t size, off64_t offset) {
  return pread(fd, bytes, size, offset);
}
KILN_FAULT_API ssize_t send(int fd, const void* bytes, size_t size, int flags) {
  const Verdict verdict = judge(Call::send, fd);
  if (verdict.action == Action::half) size /= 2;
  return carry_out(verdict, [&] { return ::syscall(SYS_sendto, fd, bytes, size, flags, nullptr, 0L); });
}
KILN_FAULT_API int fdatasync(int fd) { return sync(Call::fdatasync, fd, SYS_fdatasync); }
KILN_FAULT_API int fsync(int fd) { return sync(Call::fsync, fd, SYS_fsync); }
KILN_FAULT_API int msync(void* address, size_t length, int flags) {
  return static_cast<int>(
      carry_out(judge(Call::msync, -1, ""), [&] { return ::syscall(SYS_msync, address, length, flags); }));
}
KILN_FAULT_API int ftruncate(int fd, off_t length) noexcept { return truncate_file(fd, length); }
KILN_FAULT_API int ftruncate64(int fd, off64_t length) noexcept { return truncate_file(fd, length); }
KILN_FAULT_API int rename(const char* from, const char* to) noexcept {
  return change_names(Call::rename, Kind::rename, from, to, SYS_renameat2, 0);
}
KILN_FAULT_API int link(const char* from, const char* to) noexcept {
  return change_names(Call::link, Kind::link, from, to, SYS_linkat, 0);
}
KILN_FAULT_API int unlink(const char* path) noexcept {
  return change_names(Call::unlink, Kind::unlink, path, nullptr, SYS_unlinkat, 0);
}
KILN_FAULT_API int mkdir(const char* path, mode_t mode) noexcept {
  return change_names(Call::mkdir, Kind::make_directory, path, nullptr, SYS_mkdirat, static_cast<int>(mode));
}
KILN_FAULT_API int open(const char* path, int flags, ...) { KILN_FAULT_OPEN(AT_FDCWD); }
KILN_FAULT_API int open64(const char* path, int flags, ...) { KILN_FAULT_OPEN(AT_FDCWD); }
KILN_FAULT_API int openat(int directory, const char* path, int flags, ...) { KILN_FAULT_OPEN(directory); }
KILN_FAULT_API int openat64(int directory, const char* path, int flags, ...) { KILN_FAULT_OPEN(directory); }
KILN_FAULT_API int mkostemp(char* pattern, int flags) { return open_temporary("mkostemp", pattern, flags); }
KILN_FAULT_API int mkostemp64(char* pattern, int flags) {
  return open_temporary("mkostemp64", pattern, flags);
}
KILN_FAULT_API void* mmap(void* address, size_t length, int protection, int flags, int fd,
                          off_t offset) noexcept {
  return map(address, length, protection, flags, fd, offset);
}
KILN_FAULT_API void* mmap64(void* address, size_t length, int protection, int flags, int fd,
                            off64_t offset) noexcept {
  return map(address, length, protection, flags, fd, offset);
}
KILN_FAULT_API int fcntl(int fd, int command, ...) { KILN_FAULT_CONTROL; }
KILN_FAULT_API int fcntl64(int fd, int command, ...) { KILN_FAULT_CONTROL; }
}
