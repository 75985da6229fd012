#include "cache/store/tally.hpp"

#include "base/file_size_signal.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "base/hash.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr auto kLockWait = 20ms;
constexpr std::uint64_t kTallyMagic = 0x31796C746E6C696B;  // "kilntly1"

struct OnDisk {
  std::uint64_t magic = kTallyMagic;
  std::uint64_t values[kTallyValues] = {};
  std::uint64_t checksum = 0;

  std::uint64_t expected_checksum() const noexcept {
    return base::hash64({reinterpret_cast<const char*>(this), offsetof(OnDisk, checksum)});
  }
};
static_assert(sizeof(OnDisk) == 528);

/// Reads the tally; a file that holds none gives zeros.
OnDisk load(int fd) noexcept {
  OnDisk out;
  if (::pread(fd, &out, sizeof out, 0) != sizeof out || out.magic != kTallyMagic ||
      out.checksum != out.expected_checksum())
    return {};
  return out;
}

/// A FIFO or a device in the file's place would not answer pread.
bool is_regular(int fd) noexcept {
  struct stat st {};
  return ::fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

/// A descriptor that is used once, since a cleaner of the directory may have replaced the file
/// by the next use.
struct Once {
  FdPool::Lease lease;
  ~Once() { lease.discard(); }
};

}  // namespace

Tally::Tally(const std::string& place, const std::string& name)
    : writing_(place + '/' + name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK),
      reading_(place + '/' + name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK) {}

bool Tally::add(std::span<const std::uint64_t> deltas) noexcept {
  if (deltas.size() > kTallyValues) return false;
  const base::NoFileSizeSignal no_signal;
  try {
    const Once file{writing_.lease()};
    if (!file.lease || !is_regular(file.lease.get())) return false;
    const auto lock =
        RangeLock::acquire(file.lease.get(), 0, RangeLock::Mode::exclusive, base::Deadline::after(kLockWait));
    if (!lock) return false;
    OnDisk now = load(file.lease.get());
    for (std::size_t i = 0; i < deltas.size(); ++i) now.values[i] += deltas[i];
    now.checksum = now.expected_checksum();
    return ::pwrite(file.lease.get(), &now, sizeof now, 0) == sizeof now;
  } catch (...) {  // a filesystem without locks, no memory
    return false;
  }
}

std::vector<std::uint64_t> Tally::read() {
  std::vector<std::uint64_t> out(kTallyValues);
  try {
    const Once file{reading_.lease()};
    if (!file.lease || !is_regular(file.lease.get())) return out;
    // Without the lock a read may meet half a write, which the checksum reveals.
    const auto lock =
        RangeLock::acquire(file.lease.get(), 0, RangeLock::Mode::shared, base::Deadline::after(kLockWait));
    const OnDisk now = load(file.lease.get());
    out.assign(std::begin(now.values), std::end(now.values));
  } catch (const std::exception&) {
  }
  return out;
}

}  // namespace kiln::cache
