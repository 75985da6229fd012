// A write transaction is one LMDB transaction by a writer inside the gate, in the one order that is safe.
//
// LMDB is opened for one transaction and closed with it, so no environment outlives a put. None is inherited
// by a fork, survives a failed commit, keeps a replaced file's space, or maps more than it is about to need.
#pragma once

#include <lmdb.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/file_size_signal.hpp"
#include "cache/store/file/page_check.hpp"
#include "cache/store/file/store_file.hpp"

namespace kiln::cache {

/// An LMDB call that failed; `rc` is LMDB's code or an errno.
class LmdbError : public Error {
 public:
  LmdbError(const std::string& what, int rc);
  int rc() const noexcept { return rc_; }

 private:
  int rc_;
};
/// A commit that the disk refused for a reason other than room. The file is distrusted from then on.
struct CommitFailed : LmdbError {
  using LmdbError::LmdbError;
};
/// Returns whether a code of LMDB or errno says that there is no room.
bool out_of_space(int rc) noexcept;
/// Throws unless `rc` is 0: Damaged for codes by which LMDB complains of its pages, else LmdbError.
void check(const char* what, int rc);

/// Holds the gate's W from `enter` to destruction. Used by one thread.
class WriteTransaction {
 public:
  /// Enters the gate and holds W on the file that the path names. `why` receives what people should know when
  /// that failed. Throws Error(io) when the filesystem has no locks.
  static Entered enter(StoreFile& file, base::Deadline deadline, std::optional<WriteTransaction>& out,
                       std::string& why);
  WriteTransaction(WriteTransaction&& other) noexcept;
  WriteTransaction& operator=(WriteTransaction&&) = delete;
  ~WriteTransaction();

  int fd() const noexcept { return fd_.get(); }
  /// Stops the puts of all processes into this file until it is rewritten. A commit failed, and the next one
  /// might report success for data that is not on the disk. The mark is kept in the file's mode (the sticky
  /// bit), since the disk may take nothing more.
  void distrust() noexcept;
  /// The state that the transaction starts from. Throws Damaged unless both meta pages are sane, the file is
  /// complete, and it is trusted.
  PageFile pages() const;
  std::uint64_t file_bytes() const;

  /// Opens LMDB with a map of `map_bytes` (or the file's size, if that is more), drains the readers and
  /// begins. Returns false when readers did not leave in time. REQUIRES: the pages that will be touched
  /// were checked (cache/store/file/page_check.hpp). Throws LmdbError, and Damaged where LMDB finds what
  /// the check did not.
  bool begin(std::uint64_t map_bytes, base::Deadline deadline);
  MDB_txn* txn() const noexcept { return txn_; }
  MDB_dbi dbi() const noexcept { return dbi_; }
  /// The number of this transaction, which is the tick of its uses.
  std::int64_t tick() const noexcept;
  /// Commits and syncs. Readers see the changes when it returns; the transaction and LMDB are closed either
  /// way. Throws LmdbError, Damaged.
  void commit();
  /// Drops the transaction; `begin` may be called again.
  void abort() noexcept;

 private:
  WriteTransaction(StoreFile& file, FdPool::Lease fd, WriterPass pass)
      : file_(&file), fd_(std::move(fd)), pass_(std::move(pass)) {}
  void close_environment() noexcept;
  bool is_short_write(int rc) const noexcept;
  static void on_assertion(MDB_env* env, const char* what);

  StoreFile* file_;
  std::unique_ptr<base::NoFileSizeSignal> no_signal_ = std::make_unique<base::NoFileSizeSignal>();
  FdPool::Lease fd_;
  std::optional<WriterPass> pass_;
  MDB_env* env_ = nullptr;
  MDB_txn* txn_ = nullptr;
  MDB_dbi dbi_ = 0;
  std::uint64_t growth_ = 0;  // bytes that the transaction may add to the file
};
bool is_distrusted(int fd) noexcept;

}  // namespace kiln::cache
