#include "cache/store/file/write_transaction.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/process.hpp"
#include "cache/store/file/enter.hpp"

namespace kiln::cache {

LmdbError::LmdbError(const std::string& what, int rc)
    : Error(Errc::io, what + ": " + mdb_strerror(rc)), rc_(rc) {}

bool out_of_space(int rc) noexcept {
  return rc == MDB_MAP_FULL || rc == ENOSPC || rc == EDQUOT || rc == EFBIG;
}

void check(const char* what, int rc) {
  switch (rc) {
    case 0:
      return;
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_INVALID:
    case MDB_VERSION_MISMATCH:
    case MDB_PANIC:
    case MDB_CURSOR_FULL:
    case MDB_PAGE_FULL:
    case MDB_BAD_VALSIZE:
    case MDB_NOTFOUND:  // an entry that was just read there
      throw Damaged(std::string(what) + ": " + mdb_strerror(rc));
    default:
      throw LmdbError(what, rc);
  }
}

/// LMDB calls abort() when this returns, so it throws. The state of LMDB's objects is unknown by
/// then: they are leaked.
void WriteTransaction::on_assertion(MDB_env* env, const char* what) {
  auto* writing = static_cast<WriteTransaction*>(mdb_env_get_userctx(env));
  writing->env_ = nullptr;
  writing->txn_ = nullptr;
  throw Damaged(std::string("LMDB found its pages inconsistent: ") + what);
}

Entered WriteTransaction::enter(StoreFile& file, base::Deadline deadline,
                                std::optional<WriteTransaction>& out, std::string& why) {
  return enter_gate(
      file, file.writers,
      {"cannot open the data file for writing",
       "another writer held the gate all the time; a stopped process may hold it: see `lslocks`"},
      [&](int fd) { return WriterPass::enter(fd, deadline); },
      [&](FdPool::Lease&& fd, WriterPass&& pass) {
        out.emplace(WriteTransaction(file, std::move(fd), std::move(pass)));
      },
      why);
}

WriteTransaction::WriteTransaction(WriteTransaction&& other) noexcept
    : file_(other.file_),
      no_signal_(std::move(other.no_signal_)),
      fd_(std::move(other.fd_)),
      pass_(std::exchange(other.pass_, std::nullopt)),
      env_(std::exchange(other.env_, nullptr)),
      txn_(std::exchange(other.txn_, nullptr)),
      dbi_(other.dbi_),
      growth_(other.growth_) {}

WriteTransaction::~WriteTransaction() {
  abort();
  pass_.reset();  // before the descriptor returns to its pool
}

std::uint64_t WriteTransaction::file_bytes() const {
  struct stat st {};
  return ::fstat(fd_.get(), &st) == 0 ? static_cast<std::uint64_t>(st.st_size) : 0;
}

void WriteTransaction::distrust() noexcept {
  struct stat st {};
  if (::fstat(fd_.get(), &st) == 0) ::fchmod(fd_.get(), (st.st_mode & 0777) | S_ISVTX);
}

bool is_distrusted(int fd) noexcept {
  struct stat st {};
  return ::fstat(fd, &st) == 0 && (st.st_mode & S_ISVTX) != 0;
}

/// LMDB reports a short write as EIO. It happens on a full filesystem, or at the limit of a file's size.
bool WriteTransaction::is_short_write(int rc) const noexcept {
  struct statvfs fs {};
  struct rlimit limit {};
  if (rc != EIO) return false;
  if (::fstatvfs(fd_.get(), &fs) == 0 && fs.f_bavail * fs.f_frsize < growth_) return true;
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && file_bytes() + growth_ > limit.rlim_cur;
}

PageFile WriteTransaction::pages() const {
  if (is_distrusted(fd_.get()))
    throw Damaged("an earlier write to the file failed, and the file could not be replaced");
  bool both_sane = false;
  const PageFile pages(fd_.get(), newest_snapshot(fd_.get(), &both_sane));
  if (!both_sane) throw Damaged("one of two meta pages is not valid");
  pages.check_length();
  return pages;
}

bool WriteTransaction::begin(std::uint64_t map_bytes, base::Deadline deadline) {
  const std::uint64_t bytes = std::max(map_bytes, file_bytes());
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  check("mdb_env_create", mdb_env_create(&env_));
  check("mdb_env_set_mapsize", mdb_env_set_mapsize(env_, bytes / page * page));
  mdb_env_set_userctx(env_, this);
  mdb_env_set_assert(env_, on_assertion);
  // LMDB is opened by the descriptor that holds W: the path may lead elsewhere by now, and LMDB creates a
  // file that is absent.
  const std::string by_descriptor = "/proc/self/fd/" + std::to_string(fd_.get());
  const char* path = ::access(by_descriptor.c_str(), F_OK) == 0 ? by_descriptor.c_str() : file_->path.c_str();
  check("mdb_env_open",
        mdb_env_open(env_, path, MDB_NOSUBDIR | MDB_NOLOCK | MDB_NORDAHEAD | MDB_NOTLS, 0600));
  int fd = -1;
  mdb_env_get_fd(env_, &fd);
  base::close_at_fork(fd);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  struct stat ours {
  }, lmdbs{};
  if (::fstat(fd_.get(), &ours) != 0 || ::fstat(fd, &lmdbs) != 0 || ours.st_dev != lmdbs.st_dev ||
      ours.st_ino != lmdbs.st_ino)
    throw LmdbError("a process that did not hold the gate replaced the data file", ESTALE);
  growth_ = bytes - std::min(bytes, file_bytes());

  const auto drained = pass_->drain(deadline);
  if (!drained) {
    close_environment();
    return false;
  }
  check("mdb_txn_begin", mdb_txn_begin(env_, nullptr, 0, &txn_));
  check("mdb_dbi_open", mdb_dbi_open(txn_, nullptr, 0, &dbi_));
  return true;
}

std::int64_t WriteTransaction::tick() const noexcept { return static_cast<std::int64_t>(mdb_txn_id(txn_)); }

void WriteTransaction::commit() {
  const auto expected = static_cast<std::uint64_t>(tick());
  const int rc = mdb_txn_commit(std::exchange(txn_, nullptr));
  close_environment();
  if (is_short_write(rc)) throw LmdbError("commit", ENOSPC);
  if (rc != 0 && !out_of_space(rc)) {
    // The kernel may have dropped pages that it could not write, and will not say so twice.
    distrust();
    throw CommitFailed("commit", rc);
  }
  check("commit", rc);
  // Damaged counts of pages in the old meta page make a new meta page that no reader takes.
  if (newest_snapshot(fd_.get()).transaction != expected)
    throw Damaged("the commit's meta page is not valid");
}

void WriteTransaction::abort() noexcept {
  if (txn_) mdb_txn_abort(std::exchange(txn_, nullptr));
  close_environment();
}

void WriteTransaction::close_environment() noexcept {
  if (!env_) return;
  int fd = -1;
  mdb_env_get_fd(env_, &fd);
  base::forget_at_fork(fd);
  mdb_env_close(std::exchange(env_, nullptr));
}

}  // namespace kiln::cache
