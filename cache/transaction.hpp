// An LMDB transaction behind the gate, in the one order that is safe.
#pragma once

#include <lmdb.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "cache/environment.hpp"
#include "cache/gate.hpp"

namespace kiln::cache {

class Transaction {
 public:
  enum class Begun {
    yes,
    gate_timeout,
    stale,  ///< the environment was retired: get another one and begin again
    failed
  };

  Transaction() = default;
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  ~Transaction() { abort(); }

  /// REQUIRES: nothing begun yet. `path` is the store's spelling of the environment's file.
  /// Throws Error(io) when the filesystem has no locks.
  Begun begin_read(std::shared_ptr<Environment> environment, const std::string& path,
                   base::Deadline deadline);
  Begun begin_write(std::shared_ptr<Environment> environment, const std::string& path,
                    base::Deadline deadline);
  /// Synced when it returns 0. Any failure retires the environment: after a failed sync the next commit on it
  /// would report success.
  int commit() noexcept;
  void abort() noexcept;

  MDB_txn* get() const noexcept { return txn_; }
  MDB_dbi dbi() const noexcept { return environment_->dbi(); }
  MDB_env* env() const noexcept { return environment_->get(); }
  /// Why it did not begin, for people.
  const std::string& detail() const noexcept { return detail_; }

 private:
  Begun lease_descriptor();
  Begun begin(unsigned flags);

  // In this order: the transaction ends before the gate is left, the gate before its descriptor returns to
  // the pool.
  std::shared_ptr<Environment> environment_;
  std::unique_lock<std::mutex> only_writer_;
  FdPool::Lease fd_;
  std::optional<RangeLock> reader_;
  std::optional<WriterPass> writer_;
  MDB_txn* txn_ = nullptr;
  std::string detail_;
};

}  // namespace kiln::cache
