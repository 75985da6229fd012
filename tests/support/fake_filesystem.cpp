// A preloaded library. It makes files below a path look as if they lay on
// another filesystem, or on one without locks.
//   KILN_TEST_FILESYSTEM = PATH=MAGIC   statfs reports MAGIC (hex) for PATH and everything below it
//   KILN_TEST_NO_LOCKS = PATH           open-file-description locks of files below PATH fail with ENOLCK
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

bool is_below(std::string_view path, std::string_view top) {
  return !top.empty() && path.substr(0, top.size()) == top &&
         (path.size() == top.size() || path[top.size()] == '/');
}

std::string path_of(int fd) {
  char path[PATH_MAX];
  const ssize_t size = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return size < 0 ? std::string() : std::string(path, static_cast<std::size_t>(size));
}

template <class Stat>
int pretend(int result, const std::string& path, Stat* out) {
  const char* setting = std::getenv("KILN_TEST_FILESYSTEM");
  if (result != 0 || !setting) return result;
  const std::string text = setting;
  const auto equals = text.rfind('=');
  if (equals != std::string::npos && is_below(path, text.substr(0, equals)))
    out->f_type = static_cast<decltype(out->f_type)>(std::strtoul(text.c_str() + equals + 1, nullptr, 16));
  return result;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

int set_lock(int fd, int command, void* argument) {
  const char* top = std::getenv("KILN_TEST_NO_LOCKS");
  if (command == F_OFD_SETLK && top && is_below(path_of(fd), top)) {
    errno = ENOLCK;
    return -1;
  }
  return next<int(int, int, ...)>("fcntl64")(fd, command, argument);
}

void* argument_of(va_list list) {
  void* argument = va_arg(list, void*);
  va_end(list);
  return argument;
}

}  // namespace

extern "C" {

int statfs(const char* path, struct statfs* out) noexcept {
  return pretend(next<int(const char*, struct statfs*)>("statfs")(path, out), path, out);
}
int fstatfs(int fd, struct statfs* out) noexcept {
  return pretend(next<int(int, struct statfs*)>("fstatfs")(fd, out), path_of(fd), out);
}
int statfs64(const char* path, struct statfs64* out) noexcept {
  return pretend(next<int(const char*, struct statfs64*)>("statfs64")(path, out), path, out);
}
int fstatfs64(int fd, struct statfs64* out) noexcept {
  return pretend(next<int(int, struct statfs64*)>("fstatfs64")(fd, out), path_of(fd), out);
}
int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  return set_lock(fd, command, argument_of(list));
}
int fcntl64(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  return set_lock(fd, command, argument_of(list));
}

}  // extern "C"
