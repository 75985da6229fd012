#include "cache/store/store.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "cache/store/eviction.hpp"
#include "cache/store/file/fresh_file.hpp"
#include "cache/store/lookup.hpp"
#include "cache/store/put.hpp"
#include "cache/store/upkeep.hpp"
#include "cache/store/verify.hpp"

namespace kiln::cache {
namespace {
using namespace std::chrono_literals;
}  // namespace

struct Store::Impl {
  explicit Impl(const StoreOptions& o)
      : options(o),
        file(std::make_shared<StoreFile>(o.directory, o.access == Access::read_write)),
        upkeep(std::make_shared<Upkeep>(file, o.upkeep, o.cap_bytes)) {}

  const StoreOptions options;
  const std::shared_ptr<StoreFile> file;
  const std::shared_ptr<Upkeep> upkeep;
  Lookup lookup{*file, *upkeep};
  WritableFile writable{*file, options.cap_bytes};
  Puts puts{writable, lookup};
  std::string identity;

  std::uint64_t evict(EvictionOptions what, base::Deadline deadline);
};

Store::Store(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Store::~Store() { impl_->upkeep->stop(); }

std::shared_ptr<Store> Store::open(const StoreOptions& options) {
  StoreOptions o = options;
  o.cap_bytes = std::max(o.cap_bytes, kSmallestCap);
  auto impl = std::make_shared<Impl>(o);
  StoreFile& file = *impl->file;
  struct stat st {};
  if (file.writable) {
    create_directories(file.place);
    if (::stat(file.path.c_str(), &st) != 0 && errno == ENOENT) create_data_file(file.path);
  }
  const FdPool::Lease fd = (file.writable ? file.writers : file.readers).lease();
  if (!fd)
    throw_store_error(file.path, std::strerror(errno),
                      file.writable ? "choose a directory that this user may write with KILN_CACHE_DIR" : "");
  if (state_of(fd.get(), file.path) == FileState::foreign) throw_store_error(file.path, kForeignFile);
  enter_reader(fd.get(), base::Deadline::after(0s));  // throws where the filesystem has no locks
  if (!file.writable) newest_snapshot(fd.get());      // throws Damaged: nobody would heal the file
  if (::stat(file.place.c_str(), &st) != 0) throw_store_error(file.place, std::strerror(errno));
  impl->identity = std::to_string(st.st_dev) + "-" + std::to_string(st.st_ino);
  return std::shared_ptr<Store>(new Store(std::move(impl)));
}

GetResult Store::get(const Key& key, std::string_view key_text, base::Deadline deadline) noexcept {
  return impl_->lookup.get(key, key_text, deadline);
}

GotBytes Store::get_bytes(const Key& key, std::string_view key_text, base::Deadline deadline) noexcept {
  return impl_->lookup.get_bytes(key, key_text, deadline);
}

Peeked<Record> Store::peek(const Key& key, base::Deadline deadline) noexcept {
  return impl_->lookup.peek(key, deadline);
}

Peeked<RecordText> Store::peek_text(const Key& key, base::Deadline deadline) noexcept {
  return impl_->lookup.peek_text(key, deadline);
}

std::vector<Record> Store::find(const Digest& specialisation, base::Deadline deadline) noexcept {
  return impl_->lookup.find(specialisation, deadline);
}

Listed Store::list(const Key& first, const Key& last, const std::function<void(const Entry&)>& each) {
  return impl_->lookup.list(first, last, each);
}

PutResult Store::put(const Record& record, std::chrono::milliseconds wait, Existing existing) noexcept {
  PutResult out;
  try {
    try {
      out = impl_->puts.put(record, wait, existing);
      if (out.put == Put::stored || out.put == Put::present) impl_->upkeep->note_use(record.key, true);
    } catch (const std::exception& error) {
      out.detail = error.what();
    }
  } catch (...) {  // no memory for the detail
  }
  return out;
}

std::vector<PutResult> Store::put_many(const std::vector<Record>& records, Existing existing) noexcept {
  std::vector<PutResult> out(records.size());
  bool together = false;
  try {
    together = records.size() > 1 && impl_->puts.put_together(records, put_wait(), existing, out);
  } catch (const std::exception&) {  // no room, damage, a disk that failed: the single puts say which
  }
  std::chrono::milliseconds wait = put_wait();
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (together) {
      impl_->upkeep->note_use(records[i].key, true);
      continue;
    }
    out[i] = put(records[i], wait, existing);
    // The puts after one that timed out must not all wait as long.
    wait = out[i].put == Put::gate_timeout ? std::min(put_wait(), kPutWaitAfterTimeout) : put_wait();
  }
  return out;
}

StoreStats Store::stats() {
  StoreStats out;
  out.cap_bytes = impl_->options.cap_bytes;
  impl_->lookup.count(out);
  out.file_bytes = size_of(impl_->file->path);
  return out;
}

Verified Store::verify(const std::function<void(std::uint64_t)>& progress) {
  return cache::verify(*impl_->file, progress);
}

Rewritten Store::gc(std::uint64_t max_bytes, base::Deadline deadline) {
  impl_->upkeep->write_uses(deadline);
  return impl_->writable.replace(max_bytes, deadline);
}

Rewritten Store::clear(base::Deadline deadline) { return impl_->writable.replace(0, deadline); }

std::uint64_t Store::Impl::evict(EvictionOptions what, base::Deadline deadline) {
  if (!file->writable) throw_store_error(file->path, "was opened read-only");
  upkeep->write_uses(deadline);
  what.file_bytes = std::max(options.cap_bytes, size_of(file->path) + kTreeSlack);
  return cache::evict(*file, what, deadline);
}

std::uint64_t Store::trim(const KeyRange& range, std::uint64_t max_bytes, base::Deadline deadline) {
  EvictionOptions what;
  what.live_bytes = max_bytes, what.range = range;
  return impl_->evict(std::move(what), deadline);
}

std::uint64_t Store::remove(std::vector<Key> keys, base::Deadline deadline) {
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  EvictionOptions what;
  what.keys = std::move(keys);
  return impl_->evict(std::move(what), deadline);
}

void Store::write_uses(base::Deadline deadline) noexcept { impl_->upkeep->write_uses(deadline); }

const std::string& Store::directory() const noexcept { return impl_->file->directory; }
std::uint64_t Store::file_bytes() const noexcept { return size_of(impl_->file->path); }
std::string Store::identity() const { return impl_->identity; }
std::chrono::milliseconds Store::put_wait() const noexcept { return impl_->options.put_wait; }
bool Store::writable() const noexcept { return impl_->file->writable; }

}  // namespace kiln::cache
