#include "cache/transaction.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include "cache/lock_until.hpp"

namespace kiln::cache {

Transaction::Begun Transaction::lease_descriptor() {
  fd_ = environment_->gate_fds().lease();
  if (fd_) return Begun::yes;
  const int error = errno;
  detail_ = std::string("cannot open the data file for locking: ") + std::strerror(error);
  if (error == EMFILE || error == ENFILE || error == ENOMEM) return Begun::failed;
  environment_->retire();  // the path under which it was opened is gone; the store's own may still lead there
  return Begun::stale;
}

Transaction::Begun Transaction::begin(unsigned flags) {
  const int rc = mdb_txn_begin(environment_->get(), nullptr, flags, &txn_);
  if (rc == 0) return Begun::yes;
  txn_ = nullptr;
  detail_ = mdb_strerror(rc);
  if (rc != MDB_MAP_RESIZED && rc != MDB_PANIC) return Begun::failed;
  environment_
      ->retire();  // another process's map is larger and the file has outgrown ours, or a meta write failed
  return Begun::stale;
}

Transaction::Begun Transaction::begin_read(std::shared_ptr<Environment> environment, const std::string& path,
                                           base::Deadline deadline) {
  environment_ = std::move(environment);
  if (const Begun leased = lease_descriptor(); leased != Begun::yes) return leased;
  reader_ = enter_reader(fd_.get(), deadline);
  if (!reader_) {
    detail_ = "no reader could enter the gate in time";
    return Begun::gate_timeout;
  }
  if (!environment_->is_file_at(path, fd_.get())) {
    environment_->retire();
    return Begun::stale;
  }
  return begin(MDB_RDONLY);
}

Transaction::Begun Transaction::begin_write(std::shared_ptr<Environment> environment, const std::string& path,
                                            base::Deadline deadline) {
  environment_ = std::move(environment);
  only_writer_ = lock_until(environment_->writer_mutex(), deadline);
  if (!only_writer_) {
    detail_ = "another thread of this process was writing all the time";
    return Begun::gate_timeout;
  }
  if (environment_->retired()) return Begun::stale;  // while this thread waited
  if (const Begun leased = lease_descriptor(); leased != Begun::yes) return leased;
  writer_ = WriterPass::enter(fd_.get(), deadline);
  if (!writer_) {
    detail_ = "another writer held the gate all the time";
    return Begun::gate_timeout;
  }
  if (!environment_->is_file_at(path, fd_.get())) {
    environment_->retire();
    return Begun::stale;
  }
  const auto drained = writer_->drain(deadline);
  if (!drained) {
    detail_ = "a reader did not leave the gate in time; a stopped process may hold it";
    return Begun::gate_timeout;
  }
  return begin(0);
}

int Transaction::commit() noexcept {
  const int rc = mdb_txn_commit(std::exchange(txn_, nullptr));
  if (rc != 0) environment_->retire();
  return rc;
}

void Transaction::abort() noexcept {
  if (txn_) mdb_txn_abort(std::exchange(txn_, nullptr));
}

}  // namespace kiln::cache
