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

constexpr std::size_t kBuckets = 1 << 12, kUsesOfBucket = 8;
constexpr std::size_t kTableBytes = kBuckets * kUsesOfBucket * sizeof(std::uint64_t);
using Bucket = std::array<std::uint64_t, kUsesOfBucket>;  // high half of a use: tag; low half: transaction

struct Home {
  std::size_t bucket;
  std::uint32_t tag;  ///< never 0
};

std::uint32_t tag_of(std::uint64_t use) noexcept { return static_cast<std::uint32_t>(use >> 32); }

/// The age of a use in transactions. A transaction that is still to come was counted by another data file,
/// and gets a very high age.
std::uint32_t age_of(std::uint64_t use, const Moment& now) noexcept {
  return static_cast<std::uint32_t>(now.transaction - use);
}

Home home_of(ino_t data_file, const Key& key) noexcept {
  const struct {
    Key key;
    std::uint64_t data_file;
  } hashed{key, data_file};
  static_assert(sizeof hashed == 40, "no padding is hashed");
  const std::uint64_t hash = base::hash64({reinterpret_cast<const char*>(&hashed), sizeof hashed});
  return {hash % kBuckets, tag_of(hash) | 1};
}

/// A write beyond RLIMIT_FSIZE would kill the process, and blocking the signal costs more than the write.
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
  // The table is overwritten and never shortened, since a reader must not take it for an absent one.
  const auto zeros = std::make_unique<std::array<char, kTableBytes>>();
  if (::pwrite(fd.get(), zeros->data(), kTableBytes, 0) != static_cast<ssize_t>(kTableBytes))
    ::unlink(file.recent_path.c_str());
} catch (...) {  // no memory: the old times stay, and only change what is evicted first
}

Moment moment_of(const PageFile& pages) noexcept { return {pages.inode(), pages.snapshot().transaction}; }

bool note_recent_use(StoreFile& file, const Moment& moment, const Key& key) noexcept {
  const FdPool::Lease fd = file.recent.lease();
  if (!fd) return false;
  if (!may_write_table()) return true;
  const Home home = home_of(moment.data_file, key);
  const auto offset = static_cast<off_t>(home.bucket * sizeof(Bucket));
  Bucket bucket;
  if (::pread(fd.get(), &bucket, sizeof bucket, offset) != sizeof bucket) return true;
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < bucket.size(); ++i) {
    if (tag_of(bucket[i]) == home.tag) {
      chosen = i;
      break;
    }
    if (age_of(bucket[i], moment) > age_of(bucket[chosen], moment)) chosen = i;
  }
  const std::uint64_t use = std::uint64_t{home.tag} << 32 | static_cast<std::uint32_t>(moment.transaction);
  const auto at = offset + static_cast<off_t>(chosen * sizeof use);
  const bool noted = bucket[chosen] == use || ::pwrite(fd.get(), &use, sizeof use, at) == sizeof use;
  static_cast<void>(noted);  // a disk fault loses this one use only
  return true;
}

RecentUses::RecentUses(const StoreFile& file, const Moment& now) : now_(now) {
  const base::Fd fd(::open(file.recent_path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  struct stat st {};
  if (!fd || ::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return;
  uses_.resize(kTableBytes / sizeof uses_[0]);
  if (::pread(fd.get(), uses_.data(), kTableBytes, 0) != static_cast<ssize_t>(kTableBytes)) uses_.clear();
}

std::int64_t RecentUses::later(const Key& key, std::int64_t tick) const noexcept {
  if (uses_.empty()) return tick;
  const Home home = home_of(now_.data_file, key);
  const auto bucket = uses_.begin() + static_cast<std::ptrdiff_t>(home.bucket * kUsesOfBucket);
  const auto end = bucket + kUsesOfBucket;
  const auto use = std::find_if(bucket, end, [&](std::uint64_t it) { return tag_of(it) == home.tag; });
  if (use == end || age_of(*use, now_) > now_.transaction) return tick;
  return std::max(tick, static_cast<std::int64_t>(now_.transaction - age_of(*use, now_)));
}

}  // namespace kiln::cache
