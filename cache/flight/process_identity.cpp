#include "cache/flight/process_identity.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace kiln::cache {
namespace {

std::int64_t clock_us(clockid_t clock) noexcept {
  timespec now{};
  ::clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

std::uint64_t own_pid_namespace() noexcept {
  struct stat st {};
  return ::stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace

std::int64_t boot_us() noexcept { return clock_us(CLOCK_BOOTTIME); }
std::int64_t unix_ms() noexcept { return clock_us(CLOCK_REALTIME) / 1000; }

ProcessIdentity ProcessIdentity::self() { return {::getpid(), own_pid_namespace(), host_name()}; }

bool ProcessIdentity::here() const noexcept { return pid_namespace == own_pid_namespace(); }

std::string ProcessIdentity::who() const {
  return "pid " + std::to_string(pid) + (host.empty() ? "" : " on " + host) +
         (here() ? "" : " (of another PID namespace)");
}

void encode_key(base::Writer& out, const Key& key) {
  for (const Digest* half : {&key.specialisation, &key.toolchain})
    out.str().append(reinterpret_cast<const char*>(half->bytes.data()), half->bytes.size());
}

Key decode_key(base::Reader& in) {
  Key key;
  for (Digest* half : {&key.specialisation, &key.toolchain}) {
    const std::string_view bytes = in.take(half->bytes.size());
    std::copy(bytes.begin(), bytes.end(), half->bytes.begin());
  }
  return key;
}

}  // namespace kiln::cache
