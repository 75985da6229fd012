// A pool of descriptors of one file. Each operation uses one of its own, because OFD locks belong to the open
// file description.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/process.hpp"

namespace kiln::cache {

/// Descriptors of one file, each used by one operation at a time. Thread-safe.
class FdPool {
 public:
  enum class Keep { idle, none_yet };
  /// Keeps a few descriptors open that nobody uses, for the next operation; `none_yet`: from keep_idle() on.
  FdPool(std::string path, int open_flags, Keep keep = Keep::idle)
      : path_(std::move(path)), flags_(open_flags), keep_(keep) {}
  class Lease;  ///< must not outlive the pool
  /// An invalid lease when the file cannot be opened (errno says why).
  Lease lease();
  /// For `none_yet`; in this process, not in a forked child. A descriptor of a replaced file keeps its space:
  /// whoever calls this also calls drop_idle() from time to time.
  void keep_idle() noexcept;
  /// Closes those that nobody uses.
  void drop_idle() noexcept;

 private:
  friend class Lease;
  struct Idle {
    std::mutex mutex;
    std::vector<base::Fd> fds;
    bool keep = false;
    ~Idle();
  };
  void take_back(base::Fd fd) noexcept;
  static constexpr std::size_t kIdleLimit = 64;
  std::string path_;
  int flags_;
  Keep keep_;
  base::PerProcess<Idle> idle_;
};

class FdPool::Lease {
 public:
  Lease() = default;
  Lease(FdPool* pool, base::Fd fd)
      : pool_(pool), fd_(std::move(fd)), generation_(base::process_generation()) {}
  Lease(Lease&&) = default;
  Lease& operator=(Lease&&) = default;
  ~Lease();
  int get() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  /// Closes it instead of giving it back: it is of a file that the path no longer names.
  void discard() noexcept;

 private:
  FdPool* pool_ = nullptr;
  base::Fd fd_;
  std::uint64_t generation_ = 0;
};

}  // namespace kiln::cache
