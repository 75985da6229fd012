#include "cache/recent_uses.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.hpp"
#include "base/file_size_signal.hpp"
#include "base/hash.hpp"

namespace kiln::cache {
namespace {

constexpr std::size_t kSlots = 1 << 15;
constexpr std::size_t kTableBytes = kSlots * sizeof(std::uint64_t);

struct Slot {
  std::size_t index;
  std::uint64_t tag;  ///< in the high half; never 0
};

Slot slot_of(ino_t data_file, const Key& key) noexcept {
  const struct {
    Key key;
    std::uint64_t data_file;
  } hashed{key, data_file};
  static_assert(sizeof hashed == 40, "no padding is hashed");
  const std::uint64_t hash = base::hash64({reinterpret_cast<const char*>(&hashed), sizeof hashed});
  return {hash % kSlots, (hash >> 32 | 1) << 32};
}

/// A process that writes behind RLIMIT_FSIZE is killed. Blocking the signal costs more than the write.
bool may_write_table() noexcept {
  struct rlimit limit {};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= kTableBytes;
}

}  // namespace

void create_recent_uses(const StoreFile& file) noexcept {
  const base::NoFileSizeSignal no_signal;
  const base::Fd fd(::open(file.recent_path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fd && ::ftruncate(fd.get(), kTableBytes) != 0) ::unlink(file.recent_path.c_str());
}

Moment moment_of(const PageFile& pages) noexcept { return {pages.inode(), pages.snapshot().transaction}; }

bool note_recent_use(StoreFile& file, const Moment& moment, const Key& key) noexcept {
  const FdPool::Lease fd = file.recent.lease();
  if (!fd || !may_write_table()) return false;
  const Slot slot = slot_of(moment.data_file, key);
  const std::uint64_t value = slot.tag | static_cast<std::uint32_t>(moment.transaction);
  const auto offset = static_cast<off_t>(slot.index * sizeof value);
  return ::pwrite(fd.get(), &value, sizeof value, offset) == sizeof value;
}

RecentUses::RecentUses(const StoreFile& file, const Moment& now) : now_(now) {
  const base::Fd fd(::open(file.recent_path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  struct stat st {};
  if (!fd || ::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return;
  slots_.resize(kSlots);
  if (::pread(fd.get(), slots_.data(), kTableBytes, 0) != static_cast<ssize_t>(kTableBytes)) slots_.clear();
}

std::int64_t RecentUses::later(const Key& key, std::int64_t tick) const noexcept {
  if (slots_.empty()) return tick;
  const Slot slot = slot_of(now_.data_file, key);
  const std::uint64_t value = slots_[slot.index];
  if (value >> 32 != slot.tag >> 32) return tick;
  // The low half of a transaction that is at most 2^32 before the newest.
  const auto ago = static_cast<std::uint32_t>(now_.transaction - value);
  if (ago > now_.transaction) return tick;
  return std::max(tick, static_cast<std::int64_t>(now_.transaction - ago));
}

}  // namespace kiln::cache
