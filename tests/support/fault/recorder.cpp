#include "recorder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fault.hpp"
#include "rules.hpp"

namespace kiln::fault {
namespace {

int g_log = -1;
char g_directory[4096];

bool ours(const char* path) noexcept {
  const std::size_t size = std::strlen(g_directory);
  return std::strncmp(path, g_directory, size) == 0 && (path[size] == '/' || path[size] == '\0');
}

/// Fills `st` for a regular file or directory under the recorded directory. Returns false for anything else.
bool identify(int fd, struct stat& st) noexcept {
  char path[4096];
  path_of(fd, path);
  return ours(path) && ::fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
}

void append(const Entry& entry, const iovec* buffers, int count) noexcept {
  constexpr int kMaxBuffers = 1023;
  iovec all[kMaxBuffers + 1];
  all[0] = {const_cast<Entry*>(&entry), sizeof entry};
  if (count > kMaxBuffers) std::abort();
  std::memcpy(all + 1, buffers, static_cast<std::size_t>(count) * sizeof(iovec));
  // The buffers may hold more bytes than were written.
  std::uint64_t left = entry.payload;
  for (int i = 1; i <= count; ++i) {
    if (all[i].iov_len > left) all[i].iov_len = left;
    left -= all[i].iov_len;
  }
  const long expected = static_cast<long>(sizeof entry + entry.payload);
  if (::syscall(SYS_writev, g_log, all, count + 1) != expected) {
    std::fprintf(stderr, "kiln_fault: cannot write the log: %s\n", std::strerror(errno));
    std::abort();
  }
}

}  // namespace

bool recording() noexcept { return g_log >= 0; }

void record_write(int fd, const iovec* buffers, int count, std::int64_t offset, std::size_t written,
                  bool failed) noexcept {
  struct stat st {};
  if (!identify(fd, st)) return;
  const std::uint32_t flag = !writes_through(fd) ? kPlain : failed ? kSyncedAndFailed : kSynced;
  append({Kind::write, flag, st.st_ino, static_cast<std::uint64_t>(offset), written}, buffers, count);
}

void record_of(Kind kind, int fd, std::uint64_t offset) noexcept {
  struct stat st {};
  if (identify(fd, st)) append({kind, S_ISDIR(st.st_mode), st.st_ino, offset, 0}, nullptr, 0);
}

void record_names(Kind kind, const char* path, const char* second) noexcept {
  if (!ours(second ? second : path)) return;
  const iovec names[] = {{const_cast<char*>(path), std::strlen(path) + 1},
                         {const_cast<char*>(second), second ? std::strlen(second) + 1 : 0}};
  append({kind, 0, 0, 0, names[0].iov_len + names[1].iov_len}, names, 2);
}

void record_created(int fd) noexcept {
  struct stat st {};
  char path[4096];
  path_of(fd, path);
  if (!identify(fd, st)) return;
  const iovec name{path, std::strlen(path) + 1};
  append({Kind::create, 0, st.st_ino, 0, name.iov_len}, &name, 1);
}

}  // namespace kiln::fault

void kiln_fault_record(const char* directory, const char* log) {
  using namespace kiln::fault;
  std::snprintf(g_directory, sizeof g_directory, "%s", directory);
  g_log =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (g_log < 0) std::abort();
}

void kiln_fault_mark(std::uint64_t number) {
  using namespace kiln::fault;
  if (recording()) append({Kind::mark, 0, 0, number, 0}, nullptr, 0);
}
