#include "cache/store.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "cache/data_file.hpp"
#include "cache/pieces.hpp"
#include "cache/transaction.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr auto kOpenWait = 10s;   // for the gate, when a store is opened or opened again
constexpr auto kBatchWait = 10s;  // for the gate, per batch of a listing
constexpr int kStaleLimit = 100;  // environments found stale in a row before an operation gives up
constexpr std::size_t kBatchEntries = 256;
constexpr std::size_t kTreeSlack = 1 << 20;  // pages of the tree that a put may copy

std::string absolute(const std::string& path) {
  if (!path.empty() && path.front() == '/') return path;
  std::string cwd(4096, '\0');
  if (!::getcwd(cwd.data(), cwd.size())) throw_store_error(path, std::strerror(errno));
  return std::string(cwd.c_str()) + '/' + path;
}

bool no_space(int rc, const std::string& path, std::size_t needed) noexcept {
  if (rc == MDB_MAP_FULL || rc == ENOSPC || rc == EDQUOT || rc == EFBIG) return true;
  struct statvfs fs {};  // LMDB reports a short write on a full filesystem as EIO
  return rc == EIO && ::statvfs(path.c_str(), &fs) == 0 && fs.f_bavail * fs.f_frsize < needed;
}

}  // namespace

std::string_view to_string(Miss miss) noexcept {
  constexpr std::string_view names[] = {"absent", "damaged", "other_key_text", "gate_timeout", "unreadable"};
  return names[static_cast<int>(miss)];
}

std::string_view to_string(Put put) noexcept {
  constexpr std::string_view names[] = {"stored", "present", "read_only", "gate_timeout", "full", "failed"};
  return names[static_cast<int>(put)];
}

struct Store::Impl {
  struct Current {
    std::mutex mutex;
    std::shared_ptr<Environment> environment;
  };

  explicit Impl(const StoreOptions& o)
      : options(o), directory(absolute(o.directory)), place(directory + "/v1"), path(place + "/data.mdb") {}

  bool writable() const noexcept { return options.access == Access::read_write; }

  /// The open environment, opened again when it was retired or this is a forked child. Throws Error(io).
  std::shared_ptr<Environment> environment(base::Deadline deadline) {
    Current& now = current.get();
    {
      const std::lock_guard lock(now.mutex);
      if (now.environment && !now.environment->retired()) return now.environment;
      now.environment.reset();
    }
    if (writable()) create_directories(place);
    auto opened = Environment::open(path, writable(), options.map_bytes,
                                    earlier(deadline, base::Deadline::after(kOpenWait)));
    const std::lock_guard lock(now.mutex);
    return now.environment = std::move(opened);
  }

  using Begin = Transaction::Begun (Transaction::*)(std::shared_ptr<Environment>, const std::string&,
                                                    base::Deadline);

  /// Calls `body(transaction)` inside the gate; says how it began otherwise. Throws Error(io).
  template <class Body>
  Transaction::Begun within(Begin begin, base::Deadline deadline, std::string& detail, Body&& body) {
    for (int attempt = 0; attempt < kStaleLimit; ++attempt) {
      Transaction transaction;
      const auto begun = (transaction.*begin)(environment(deadline), path, deadline);
      if (begun == Transaction::Begun::yes) body(transaction);
      detail = transaction.detail();
      if (begun != Transaction::Begun::stale) return begun;
    }
    detail = "the file is replaced again and again; does something clean the directory?";
    return Transaction::Begun::failed;
  }
  template <class Body>
  Transaction::Begun reading(base::Deadline deadline, std::string& detail, Body&& body) {
    return within(&Transaction::begin_read, deadline, detail, std::forward<Body>(body));
  }
  /// As `reading`; throws Error(io) as well when it did not begin.
  template <class Body>
  void reading_or_throw(base::Deadline deadline, Body&& body) {
    std::string detail;
    if (reading(deadline, detail, std::forward<Body>(body)) != Transaction::Begun::yes)
      throw_store_error(path, "cannot be read: " + detail);
  }

  GetResult get(const Key& key, const std::string_view* key_text, base::Deadline deadline);
  PutResult put(const Key& key, const Record& record);
  PutResult write(Transaction& transaction, const Key& key, const Record& record, std::string_view encoded);

  const StoreOptions options;
  const std::string directory, place, path;
  std::string identity;
  PerProcess<Current> current;
};

GetResult Store::Impl::get(const Key& key, const std::string_view* key_text, base::Deadline deadline) {
  std::string encoded, detail;
  Copied copied = Copied::absent;
  const auto begun = reading(deadline, detail,
                             [&](Transaction& t) { copied = copy_record(t.get(), t.dbi(), key, encoded); });
  if (begun != Transaction::Begun::yes)
    return {{}, begun == Transaction::Begun::gate_timeout ? Miss::gate_timeout : Miss::unreadable};
  if (copied == Copied::absent) return {{}, Miss::absent};
  auto record = copied == Copied::complete ? decode(encoded) : std::nullopt;
  if (!record) return {{}, Miss::damaged};
  if (key_text && record->key_text != *key_text) return {{}, Miss::other_key_text};
  return {std::move(record), {}};
}

PutResult Store::Impl::put(const Key& key, const Record& record) {
  if (!writable()) return {Put::read_only, "the store was opened read-only"};
  const std::string encoded = encode(record);
  if (encoded.size() > kMaxRecordBytes)
    return {Put::failed, "a record of " + std::to_string(encoded.size()) + " bytes; at most " +
                             std::to_string(kMaxRecordBytes) + " can be stored"};
  const auto deadline = base::Deadline::after(options.put_wait);
  const std::string_view key_text = record.key_text;
  if (get(key, &key_text, deadline).record) return {Put::present, {}};  // without keeping writers waiting
  PutResult out;
  std::string detail;
  const auto begun = within(&Transaction::begin_write, deadline, detail,
                            [&](Transaction& t) { out = write(t, key, record, encoded); });
  if (begun == Transaction::Begun::yes) return out;
  return {begun == Transaction::Begun::gate_timeout ? Put::gate_timeout : Put::failed, detail};
}

PutResult Store::Impl::write(Transaction& transaction, const Key& key, const Record& record,
                             std::string_view encoded) {
  std::string there;
  if (copy_record(transaction.get(), transaction.dbi(), key, there) == Copied::complete)
    if (const auto found = decode(there); found && found->key_text == record.key_text)
      return {Put::present, {}};
  int rc = write_record(transaction.get(), transaction.dbi(), key, encoded);
  if (rc == 0) rc = transaction.commit();
  if (rc == 0) return {Put::stored, {}};
  return {no_space(rc, path, 2 * encoded.size() + kTreeSlack) ? Put::full : Put::failed, mdb_strerror(rc)};
}

Store::Store(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;

std::shared_ptr<Store> Store::open(const StoreOptions& options) {
  auto impl = std::make_shared<Impl>(options);
  impl->environment(base::Deadline::never());
  struct stat st {};
  if (::stat(impl->place.c_str(), &st) != 0) throw_store_error(impl->place, std::strerror(errno));
  impl->identity = std::to_string(st.st_dev) + "-" + std::to_string(st.st_ino);
  return std::shared_ptr<Store>(new Store(std::move(impl)));
}

GetResult Store::get(const Key& key, std::string_view key_text, base::Deadline deadline) noexcept {
  try {
    return impl_->get(key, &key_text, deadline);
  } catch (...) {
    return {{}, Miss::unreadable};
  }
}

std::optional<Record> Store::peek(const Key& key, base::Deadline deadline) noexcept {
  try {
    return impl_->get(key, nullptr, deadline).record;
  } catch (...) {
    return std::nullopt;
  }
}

std::vector<std::pair<Key, Record>> Store::find(const Digest& specialisation,
                                                base::Deadline deadline) noexcept {
  std::vector<std::pair<Key, Record>> out;
  try {
    std::vector<Key> keys;
    std::string detail;
    impl_->reading(deadline, detail, [&](Transaction& t) {
      RecordWalk walk(t.get(), t.dbi());
      std::optional<Key> from = Key{specialisation, {}};
      for (; from && walk.seek(*from) && walk.key().specialisation == specialisation;
           from = successor(walk.key()))
        keys.push_back(walk.key());
    });
    for (const Key& key : keys)
      if (auto found = impl_->get(key, nullptr, deadline); found.record)
        out.emplace_back(key, std::move(*found.record));
  } catch (...) {  // what was found so far
  }
  return out;
}

PutResult Store::put(const Key& key, const Record& record) noexcept {
  PutResult out;
  try {
    try {
      return impl_->put(key, record);
    } catch (const std::exception& error) {
      out.detail = error.what();
    }
  } catch (...) {  // no memory for the detail
  }
  return out;
}

void Store::list(const std::function<void(const Entry&)>& each) {
  struct Head {
    Key key;
    std::string bytes;
    std::uint64_t record_size;
  };
  std::vector<Head> batch;
  for (std::optional<Key> from = Key{}; from;) {
    batch.clear();
    bool more = true;
    int code = 0;
    impl_->reading_or_throw(base::Deadline::after(kBatchWait), [&](Transaction& t) {
      RecordWalk walk(t.get(), t.dbi());
      while (batch.size() < kBatchEntries && from && (more = walk.seek(*from))) {
        Head& head = batch.emplace_back(Head{walk.key(), {}, 0});
        head.bytes = walk.head(head.record_size);
        from = successor(head.key);
      }
      code = walk.code();
    });
    if (code != 0) throw_store_error(impl_->path, std::string("cannot be read: ") + mdb_strerror(code));
    for (const Head& entry : batch)
      if (auto head = decode_head(entry.bytes))
        each({entry.key, std::move(head->facts), entry.record_size, head->image_size});
    if (!more) return;
  }
}

StoreStats Store::stats() {
  StoreStats out;
  constexpr std::size_t kCountedPerBatch = 4096;
  bool more = true;
  for (std::optional<Key> from = Key{}; from && more;) {
    impl_->reading_or_throw(base::Deadline::after(kBatchWait), [&](Transaction& t) {
      MDB_stat pages{};
      mdb_stat(t.get(), t.dbi(), &pages);
      out.live_bytes =
          (pages.ms_branch_pages + pages.ms_leaf_pages + pages.ms_overflow_pages) * pages.ms_psize;
      RecordWalk walk(t.get(), t.dbi());
      for (std::size_t n = 0; n < kCountedPerBatch && from && (more = walk.seek(*from)); ++n) {
        ++out.entries;
        from = successor(walk.key());
      }
    });
  }
  out.file_bytes = impl_->environment(base::Deadline::after(kBatchWait))->file_bytes();
  return out;
}

const std::string& Store::directory() const noexcept { return impl_->directory; }
std::string Store::identity() const { return impl_->identity; }
bool Store::writable() const noexcept { return impl_->writable(); }

}  // namespace kiln::cache
