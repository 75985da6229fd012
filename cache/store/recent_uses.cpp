#include "cache/store/recent_uses.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/fd.hpp"
#include "base/file_size_signal.hpp"
#include "base/hash.hpp"

namespace kiln::cache {
namespace {

constexpr std::size_t kBuckets = 1 << 12, kSlotsOfBucket = 8;
constexpr std::size_t kTableBytes = kBuckets * kSlotsOfBucket * sizeof(std::uint64_t);
using Bucket = std::array<std::uint64_t, kSlotsOfBucket>;  // of slots: the tag above, the transaction below

struct Place {
  std::size_t bucket;
  std::uint32_t tag;  ///< never 0
};

std::uint32_t tag_of(std::uint64_t slot) noexcept { return static_cast<std::uint32_t>(slot >> 32); }

/// How many transactions ago; many for one that is still to come, which another data file counted.
std::uint32_t age_of(std::uint64_t slot, const Moment& now) noexcept {
  return static_cast<std::uint32_t>(now.transaction - slot);
}

Place place_of(ino_t data_file, const Key& key) noexcept {
  const struct {
    Key key;
    std::uint64_t data_file;
  } hashed{key, data_file};
  static_assert(sizeof hashed == 40, "no padding is hashed");
  const std::uint64_t hash = base::hash64({reinterpret_cast<const char*>(&hashed), sizeof hashed});
  return {hash % kBuckets, tag_of(hash) | 1};
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

void forget_recent_uses(const StoreFile& file) noexcept try {
  const base::NoFileSizeSignal no_signal;
  const base::Fd fd(::open(file.recent_path.c_str(), O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return;
  // Overwritten and never shorter: a reader must not take it for a table that is not there.
  const auto zeros = std::make_unique<std::array<char, kTableBytes>>();
  if (::pwrite(fd.get(), zeros->data(), kTableBytes, 0) != static_cast<ssize_t>(kTableBytes))
    ::unlink(file.recent_path.c_str());
} catch (...) {  // no memory: the old times stay, and decide only who is evicted first
}

Moment moment_of(const PageFile& pages) noexcept { return {pages.inode(), pages.snapshot().transaction}; }

bool note_recent_use(StoreFile& file, const Moment& moment, const Key& key) noexcept {
  const FdPool::Lease fd = file.recent.lease();
  if (!fd) return false;
  if (!may_write_table()) return true;
  const Place place = place_of(moment.data_file, key);
  const auto offset = static_cast<off_t>(place.bucket * sizeof(Bucket));
  Bucket bucket;
  if (::pread(fd.get(), &bucket, sizeof bucket, offset) != sizeof bucket) return true;
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < bucket.size(); ++i) {
    if (tag_of(bucket[i]) == place.tag) {
      chosen = i;
      break;
    }
    if (age_of(bucket[i], moment) > age_of(bucket[chosen], moment)) chosen = i;
  }
  const std::uint64_t slot = std::uint64_t{place.tag} << 32 | static_cast<std::uint32_t>(moment.transaction);
  const auto at = offset + static_cast<off_t>(chosen * sizeof slot);
  const bool noted = bucket[chosen] == slot || ::pwrite(fd.get(), &slot, sizeof slot, at) == sizeof slot;
  static_cast<void>(noted);  // a fault of the disk costs this time alone
  return true;
}

RecentUses::RecentUses(const StoreFile& file, const Moment& now) : now_(now) {
  const base::Fd fd(::open(file.recent_path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  struct stat st {};
  if (!fd || ::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return;
  slots_.resize(kTableBytes / sizeof slots_[0]);
  if (::pread(fd.get(), slots_.data(), kTableBytes, 0) != static_cast<ssize_t>(kTableBytes)) slots_.clear();
}

std::int64_t RecentUses::later(const Key& key, std::int64_t tick) const noexcept {
  if (slots_.empty()) return tick;
  const Place place = place_of(now_.data_file, key);
  const auto bucket = slots_.begin() + static_cast<std::ptrdiff_t>(place.bucket * kSlotsOfBucket);
  const auto end = bucket + kSlotsOfBucket;
  const auto slot = std::find_if(bucket, end, [&](std::uint64_t it) { return tag_of(it) == place.tag; });
  if (slot == end || age_of(*slot, now_) > now_.transaction) return tick;
  return std::max(tick, static_cast<std::int64_t>(now_.transaction - age_of(*slot, now_)));
}

}  // namespace kiln::cache
