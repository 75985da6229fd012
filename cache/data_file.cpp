#include "cache/data_file.hpp"

#include <fcntl.h>
#include <lmdb.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/file.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

constexpr const char* kChooseAnother = "choose a directory that this user may write with KILN_CACHE_DIR";

/// A complete empty environment under a temporary name beside `path`; removed on destruction unless renamed.
class FreshFile {
 public:
  explicit FreshFile(const std::string& path) : name_(path + ".new-XXXXXX") {
    const base::Fd fd(::mkostemp(name_.data(), O_CLOEXEC));
    if (!fd) throw_store_error(path, std::strerror(errno), kChooseAnother);
    MDB_env* env = nullptr;
    int rc = mdb_env_create(&env);
    if (rc == 0) rc = mdb_env_open(env, name_.c_str(), MDB_NOSUBDIR | MDB_NOLOCK, 0600);
    if (env) mdb_env_close(env);
    if (rc == 0 && ::fsync(fd.get()) != 0) rc = errno;
    if (rc == 0) return;
    ::unlink(name_.c_str());
    throw_store_error(path, mdb_strerror(rc));
  }
  FreshFile(const FreshFile&) = delete;
  FreshFile& operator=(const FreshFile&) = delete;
  ~FreshFile() { ::unlink(name_.c_str()); }
  const char* name() const noexcept { return name_.c_str(); }

 private:
  std::string name_;
};

void sync_directory_of(const std::string& path) {
  const base::Fd fd(::open(base::directory_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd) ::fsync(fd.get());  // best effort: without it a power loss may lose an empty file
}

// LMDB 0.9's meta page (mdb.c: MDB_page, MDB_meta, MDB_db), as it lies on disk on 64-bit little-endian
// machines.
struct DiskDb {
  std::uint32_t page_size;  // md_pad, which the free list's entry uses for the page size
  std::uint16_t flags, depth;
  std::uint64_t branch_pages, leaf_pages, overflow_pages, entries, root;
};
struct DiskMeta {
  std::uint64_t page_number;
  std::uint16_t pad, page_flags;
  std::uint32_t bounds;
  std::uint32_t magic, version;
  std::uint64_t address, map_size;
  DiskDb free, main;
  std::uint64_t last_page, transaction;
};
static_assert(sizeof(DiskDb) == 48 && sizeof(DiskMeta) == 152);

constexpr std::uint32_t kMagic = 0xBEEFC0DE, kVersion = 1;
constexpr std::uint16_t kMetaPage = 0x08, kMaxDepth = 32;
constexpr std::uint64_t kNoPage = ~std::uint64_t{0};

bool sane(const DiskDb& db, std::uint64_t last_page) noexcept {
  const bool root_in_file = db.root == kNoPage ? db.depth == 0 : db.root > 1 && db.root <= last_page;
  return root_in_file && db.depth <= kMaxDepth;
}

bool sane(const DiskMeta& meta) noexcept {
  const std::uint32_t size = meta.free.page_size;
  return (meta.page_flags & kMetaPage) != 0 && meta.magic == kMagic && meta.version == kVersion &&
         size >= 512 && size <= 0x8000 && (size & (size - 1)) == 0 && meta.last_page >= 1 &&
         meta.last_page < kNoPage / size - 1 && meta.main.flags == 0 && sane(meta.free, meta.last_page) &&
         sane(meta.main, meta.last_page);
}

DiskMeta read_meta(int fd, std::uint64_t offset, const std::string& path) {
  DiskMeta meta;
  const ssize_t got = ::pread(fd, &meta, sizeof meta, static_cast<off_t>(offset));
  if (got < 0) throw_store_error(path, std::strerror(errno));
  if (static_cast<std::size_t>(got) != sizeof meta || !sane(meta))
    throw_store_error(path, "damaged (no valid meta page at offset " + std::to_string(offset) + ")",
                      "remove the file: what it held will be compiled again");
  return meta;
}

}  // namespace

void throw_store_error(const std::string& path, const std::string& why, const std::string& remedy) {
  throw Error(Errc::io, "store " + path + ": " + why + (remedy.empty() ? "" : "; " + remedy));
}

void create_directories(const std::string& path) {
  struct stat st {};
  if (path.empty() || (::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode))) return;
  const std::string parent = base::directory_of(path);
  if (parent != path && parent != ".") create_directories(parent);
  if (::mkdir(path.c_str(), 0700) == 0) return;
  const int error = errno;
  if (error == EEXIST && ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) return;  // another process's
  throw_store_error(path, std::string("cannot create the directory: ") + std::strerror(error),
                    kChooseAnother);
}

void create_data_file(const std::string& path) {
  const FreshFile fresh(path);
  if (::link(fresh.name(), path.c_str()) != 0 && errno != EEXIST) {
    // A filesystem without hard links. Two that rename at once are told apart by the inode check of every
    // transaction.
    if (::access(path.c_str(), F_OK) != 0 && ::rename(fresh.name(), path.c_str()) != 0)
      throw_store_error(path, std::strerror(errno), kChooseAnother);
  }
  sync_directory_of(path);
}

void replace_empty_data_file(const std::string& path) {
  const FreshFile fresh(path);
  if (::rename(fresh.name(), path.c_str()) != 0)
    throw_store_error(path, std::strerror(errno), kChooseAnother);
  sync_directory_of(path);
}

void check_data_file(int fd, const std::string& path) {
  const DiskMeta first = read_meta(fd, 0, path);
  const DiskMeta second = read_meta(fd, first.free.page_size, path);
  const DiskMeta& newest = first.transaction > second.transaction ? first : second;
  if (first.free.page_size != second.free.page_size)
    throw_store_error(path, "damaged (two page sizes)",
                      "remove the file: what it held will be compiled again");
  struct stat st {};
  if (::fstat(fd, &st) != 0) throw_store_error(path, std::strerror(errno));
  const std::uint64_t needed = (newest.last_page + 1) * newest.free.page_size;
  if (static_cast<std::uint64_t>(st.st_size) < needed)
    throw_store_error(
        path, "truncated to " + std::to_string(st.st_size) + " of " + std::to_string(needed) + " bytes",
        "remove the file: what it held will be compiled again");
}

}  // namespace kiln::cache
