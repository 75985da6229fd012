#include "cache/environment.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "cache/data_file.hpp"
#include "cache/lock_until.hpp"
#include "cache/process.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

constexpr std::uint64_t kSmallestMap = std::uint64_t{64} << 20;
constexpr int kReplacedLimit = 100;  // a file that is replaced this often during one open is not usable
constexpr const char* kGateHeld =
    "the gate could not be had in time; a stopped process may hold it: see `lslocks`";

struct Registry {
  std::mutex mutex;
  std::map<std::pair<FileId, bool>, std::weak_ptr<Environment>> open;  // by file and writable

  std::shared_ptr<Environment> find(FileId file, bool writable) {
    for (const bool candidate : {true, false}) {
      if (writable && !candidate) break;
      const auto at = open.find({file, candidate});
      if (at == open.end()) continue;
      if (auto environment = at->second.lock(); environment && !environment->retired()) return environment;
      open.erase(at);
    }
    return nullptr;
  }
};

/// The process registry: a destructor that runs at exit may still use a store, so it is never destroyed.
union Undying {
  PerProcess<Registry> registry;
  constexpr Undying() : registry() {}
  ~Undying() {}
};
constinit Undying undying;

[[noreturn]] void throw_lmdb_error(const std::string& path, int rc) {
  throw_store_error(path, mdb_strerror(rc), rc == ENOMEM ? "raise the address-space limit (ulimit -v)" : "");
}

bool names(const std::string& path, FileId file) noexcept {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 && FileId::of(st) == file;
}

/// Writers initialise a zero-length file under W; whoever comes second finds the path's inode changed.
void fill_empty_file(const std::string& path, int fd, FileId file, base::Deadline deadline) {
  const auto pass = WriterPass::enter(fd, deadline);
  if (!pass) throw_store_error(path, kGateHeld);
  struct stat st {};
  if (names(path, file) && ::fstat(fd, &st) == 0 && st.st_size == 0) replace_empty_data_file(path);
}

}  // namespace

std::shared_ptr<Environment> Environment::open(const std::string& path, bool writable,
                                               std::uint64_t map_bytes, base::Deadline deadline) {
  Registry& registry = undying.registry.get();
  const auto lock = lock_until(registry.mutex, deadline);
  if (!lock) throw_store_error(path, "another thread has been opening a store for too long");
  for (int attempt = 0; attempt < kReplacedLimit; ++attempt)
    if (auto environment = try_open(path, writable, map_bytes, deadline)) return environment;
  throw_store_error(path, "is replaced again and again; does something clean the directory?");
}

/// Nothing when the file appeared or was replaced meanwhile: look again.
std::shared_ptr<Environment> Environment::try_open(const std::string& path, bool writable,
                                                   std::uint64_t map_bytes, base::Deadline deadline) {
  const base::Fd fd(::open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK));
  if (!fd && errno == ENOENT && writable) {
    create_data_file(path);
    return nullptr;
  }
  struct stat st {};
  if (!fd || ::fstat(fd.get(), &st) != 0)
    throw_store_error(path, std::strerror(errno),
                      writable ? "choose a directory that this user may write with KILN_CACHE_DIR" : "");
  if (!S_ISREG(st.st_mode)) throw_store_error(path, "not a regular file");
  const FileId file = FileId::of(st);
  Registry& registry = undying.registry.get();
  if (auto known = registry.find(file, writable)) return known;
  if (st.st_size == 0) {
    if (!writable) throw_store_error(path, "empty");
    fill_empty_file(path, fd.get(), file, deadline);
    return nullptr;
  }
  // LMDB opens the path twice (data and metas): while R is held, nobody replaces the file in between.
  const auto gate = enter_reader(fd.get(), deadline);
  if (!gate) throw_store_error(path, kGateHeld);
  if (!names(path, file)) return nullptr;
  check_data_file(fd.get(), path);
  std::shared_ptr<Environment> environment(new Environment(path, writable));
  environment->map(path, map_bytes);
  if (environment->file_ != file || !names(path, file)) return nullptr;
  registry.open[{file, writable}] = environment;
  return environment;
}

Environment::Environment(const std::string& path, bool writable)
    : writable_(writable), generation_(process_generation()), gate_fds_(path, writable ? O_RDWR : O_RDONLY) {}

void Environment::map(const std::string& path, std::uint64_t map_bytes) {
  const unsigned flags = MDB_NOSUBDIR | MDB_NOLOCK | MDB_NORDAHEAD | MDB_NOTLS | (writable_ ? 0 : MDB_RDONLY);
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  int rc = ENOMEM;
  const std::uint64_t smallest = std::min(map_bytes, kSmallestMap);
  for (std::uint64_t size = map_bytes; rc == ENOMEM && size >= smallest && size > 0; size /= 2) {
    if ((rc = mdb_env_create(&env_)) != 0) throw_lmdb_error(path, rc);
    if ((rc = mdb_env_set_mapsize(env_, size / page * page)) == 0)
      rc = mdb_env_open(env_, path.c_str(), flags, 0600);
    if (rc != 0) mdb_env_close(std::exchange(env_, nullptr));
  }
  if (rc != 0) throw_lmdb_error(path, rc);

  int fd = -1;
  struct stat st {};
  mdb_env_get_fd(env_, &fd);
  close_at_fork(fd);
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || ::fstat(fd, &st) != 0) throw_lmdb_error(path, errno);
  file_ = FileId::of(st);
  longest_ = st.st_size;

  MDB_txn* txn = nullptr;
  if ((rc = mdb_txn_begin(env_, nullptr, MDB_RDONLY, &txn)) != 0) throw_lmdb_error(path, rc);
  rc = mdb_dbi_open(txn, nullptr, 0,
                    &dbi_);  // also sets the comparison function, which transactions then share
  mdb_txn_abort(txn);
  if (rc != 0) throw_lmdb_error(path, rc);
}

Environment::~Environment() {
  if (!env_ || generation_ != process_generation()) return;  // a forked child leaks what it inherited
  int fd = -1;
  mdb_env_get_fd(env_, &fd);
  forget_at_fork(fd);
  mdb_env_close(env_);
}

std::uint64_t Environment::file_bytes() const {
  int fd = -1;
  struct stat st {};
  mdb_env_get_fd(env_, &fd);
  return ::fstat(fd, &st) == 0 ? static_cast<std::uint64_t>(st.st_size) : 0;
}

bool Environment::is_file_at(const std::string& path, int locked_fd) noexcept {
  struct stat at_path {
  }, locked{};
  if (::stat(path.c_str(), &at_path) != 0 || FileId::of(at_path) != file_) return false;
  if (::fstat(locked_fd, &locked) != 0 || FileId::of(locked) != file_) return false;
  std::int64_t seen = longest_.load(std::memory_order_relaxed);
  while (seen < locked.st_size && !longest_.compare_exchange_weak(seen, locked.st_size)) {
  }
  return locked.st_size >= seen;
}

}  // namespace kiln::cache
