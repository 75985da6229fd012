// For tests in which another user takes part: a child with another uid. They need
// root, and skip with a message without it.
#pragma once

#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>

namespace kiln::testing {

/// Uids without a name: a test's "this user", and another user.
constexpr unsigned kUser = 54321, kStranger = 54322;

#define KILN_NEEDS_ROOT() \
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be several users"

/// Runs `body` in a child as `uid` and returns its result. 0 keeps this process's uid.
inline std::string as_user(unsigned uid, const std::function<std::string()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return "pipe failed";
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(ends[0]);
    std::string out;
    if (uid != 0 &&
        (::setgroups(0, nullptr) != 0 || ::setresgid(uid, uid, uid) != 0 || ::setresuid(uid, uid, uid) != 0))
      out = "setresuid failed";
    try {
      if (out.empty()) out = body();
    } catch (const std::exception& error) {
      out = std::string("threw: ") + error.what();
    }
    const bool written = ::write(ends[1], out.data(), out.size()) == static_cast<ssize_t>(out.size());
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string out;
  char buffer[4096];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    out.append(buffer, static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) out += " (signal " + std::to_string(WTERMSIG(status)) + ")";
  return out;
}

inline void make(const std::string& directory, unsigned mode, unsigned owner) {
  std::filesystem::create_directories(directory);
  if (::chown(directory.c_str(), owner, owner) != 0 || ::chmod(directory.c_str(), mode) != 0)
    std::perror(directory.c_str());
}

inline std::string mode_of(const std::string& path) {
  struct stat st {};
  char text[16] = "absent";
  if (::lstat(path.c_str(), &st) == 0) std::snprintf(text, sizeof text, "%04o", st.st_mode & 07777u);
  return text;
}

/// Removes the files in /dev/shm of every store below `top`.
inline void remove_shared_memory_of(const std::string& top) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(top, error)) {
    struct stat st {};
    if (entry.path().filename() != "v1" || ::stat(entry.path().c_str(), &st) != 0) continue;
    const std::string identity = '-' + std::to_string(st.st_dev) + '-' + std::to_string(st.st_ino);
    for (const auto& file : fs::directory_iterator("/dev/shm", error))
      if (file.path().filename().string().find(identity + '.') != std::string::npos)
        fs::remove(file.path(), error);
  }
}

/// Removes a tree that held stores, and their files in /dev/shm.
inline void remove_with_shared_memory(const std::string& top) {
  remove_shared_memory_of(top);
  std::filesystem::remove_all(top);
}

}  // namespace kiln::testing
