// A pool of descriptors of one file. Each operation uses a descriptor of its own, because OFD locks belong to
// the open file description.
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
  /// Keeps a few unused descriptors open for the next operations. With `none_yet` it
  /// keeps none until keep_idle().
  FdPool(std::string path, int open_flags, Keep keep = Keep::idle)
      : path_(std::move(path)), flags_(open_flags), keep_(keep) {}
  class Lease;  ///< must not outlive the pool
  /// Returns an invalid lease when the file cannot be opened; errno says why.
  Lease lease();
  /// Ends `none_yet` in this process; a forked child is not affected. A descriptor of a replaced file keeps
  /// its space, so the caller must also call drop_idle() from time to time.
  void keep_idle() noexcept;
  /// Closes the unused descriptors.
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
  /// Closes the descriptor instead of giving it back. Its file is no longer the one that the path names.
  void discard() noexcept;

 private:
  FdPool* pool_ = nullptr;
  base::Fd fd_;
  std::uint64_t generation_ = 0;
};

}  // namespace kiln::cache
