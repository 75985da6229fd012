#include "tools/kiln/caches/tree/capture.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <map>
#include <optional>

#include "base/hash.hpp"
#include "base/quote.hpp"
#include "kiln/error.hpp"
#include "tools/kiln/caches/tree/beneath.hpp"
#include "tools/kiln/caches/tree/time.hpp"

namespace kiln::cli {
namespace {

constexpr int kReadings = 3;  ///< of a file that changes
constexpr std::uint64_t kBatch = std::uint64_t{16} << 20;
constexpr std::int64_t kSettled_ns = 2'000'000'000;  // as in base::FileStamp::settled

std::int64_t now_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return ns_of(now);
}

struct FileState {
  std::uint64_t size = 0;
  std::int64_t modified_ns = 0, changed_ns = 0;
  friend bool operator==(const FileState&, const FileState&) = default;
};
std::optional<FileState> state_of(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return FileState{static_cast<std::uint64_t>(status.st_size), ns_of(status.st_mtim), ns_of(status.st_ctim)};
}

/// Reads up to the end. False on an error.
bool read_to_end(int fd, std::uint64_t size, std::string& out) {
  out.resize(static_cast<std::size_t>(size) + 1);  // one more byte shows that the file grew
  std::size_t have = 0;
  while (have < out.size()) {
    const ssize_t got = ::read(fd, out.data() + have, out.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  out.resize(have);
  return true;
}

class Capture {
 public:
  Capture(const CaptureRequest& request, runtime::BlobSpace& files) : request_(request), files_(files) {
    root_ = base::Fd(::open(request.root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!root_)
      throw Error(Errc::io, "cannot read the directory '" + request.root + "': " + std::strerror(errno));
  }

  Captured run() {
    struct stat status {};
    ::fstat(root_.get(), &status);
    out_.tree.root = request_.root;
    out_.tree.root_mode = status.st_mode & 0777;
    if (request_.last)
      for (const TreeEntry& entry : request_.last->entries) last_.emplace(entry.path, &entry);
    for (const auto& blob : files_.list())
      if (blob.compatibility == kFileCompatibility) there_.insert(blob.key);
    const std::uint64_t evictions_before = files_.counts().evictions;
    Beneath beneath(root_.get());
    for (TreeEntry& entry :
         walk(root_.get(), request_.choice, [this](std::string what) { leave_out(std::move(what)); }))
      if (!entry.is_file() || is_as_before(entry) || read(beneath, entry))
        out_.tree.entries.push_back(std::move(entry));
    store();
    if (files_.counts().evictions != evictions_before) check_all_there();
    return std::move(out_);
  }

 private:
  void leave_out(std::string what) {
    ++out_.skipped;
    out_.warnings.push_back(std::move(what));
  }

  bool is_as_before(TreeEntry& entry) const {
    const auto found = last_.find(entry.path);
    if (request_.full || found == last_.end()) return false;
    const TreeEntry& last = *found->second;
    if (last.kind != TreeEntry::Kind::file || last.size != entry.size ||
        last.modified_ns != entry.modified_ns || !there_.contains(last.digest.hex()))
      return false;
    entry.digest = last.digest;
    return true;
  }

  /// Reads the file, and keeps its bytes for the next batch. False for a file that is left out.
  bool read(Beneath& beneath, TreeEntry& entry) {
    std::string bytes;
    for (int reading = 0; reading < kReadings; ++reading) {
      const int parent = beneath.parent_of(entry.path);
      const base::Fd fd(parent < 0 ? -1
                                   : ::openat(parent, Beneath::name_of(entry.path),
                                              O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
      const auto before = fd ? state_of(fd.get()) : std::nullopt;
      if (!before) {
        if (errno == ENOENT)
          return false;  // removed meanwhile, as JIT compilers remove their temporary files
        leave_out(base::quote(entry.path) + " cannot be read: " + std::strerror(errno));
        return false;
      }
      if (before->size > cache::kLargestBlob) break;
      if (!read_to_end(fd.get(), before->size, bytes)) break;
      const auto after = state_of(fd.get());
      if (after != before || bytes.size() != before->size) continue;
      entry.size = before->size, entry.modified_ns = before->modified_ns;
      if (before->modified_ns > now_ns() - kSettled_ns) entry.kind = TreeEntry::Kind::fresh_file;
      ++out_.read;
      keep(entry, std::move(bytes));
      return true;
    }
    leave_out(base::quote(entry.path) + " changed while it was read, or is too large; it is left out");
    return false;
  }

  void keep(TreeEntry& entry, std::string bytes) {
    entry.digest = base::digest_of(bytes);
    std::string key = entry.digest.hex();
    if (there_.insert(key).second)
      checked_.insert(key);
    else if (!request_.full || !is_damaged(key, bytes))
      return;
    batch_bytes_ += bytes.size();
    batch_.push_back({std::move(key), std::move(bytes)});
    if (batch_bytes_ >= kBatch) store();
  }

  /// True once for a listed blob that gives other bytes or none. The list has only the heads of blobs.
  bool is_damaged(const std::string& key, std::string_view bytes) {
    if (!checked_.insert(key).second) return false;
    const auto found = files_.get(key);
    return !found || found->view != bytes;
  }

  void store() {
    if (batch_.empty()) return;
    const runtime::BlobSpace::PutMany done = files_.put_many(batch_);
    if (done.skipped > 0)
      throw Error(Errc::io, "could not store the files of '" + request_.root + "': " + done.why);
    out_.stored += batch_.size(), out_.stored_bytes += batch_bytes_;
    batch_.clear();
    batch_bytes_ = 0;
  }

  /// The puts deleted blobs, which may be files of this very directory.
  void check_all_there() {
    std::set<std::string> there;
    for (const auto& blob : files_.list())
      if (blob.compatibility == kFileCompatibility) there.insert(blob.key);
    const auto missing = std::count_if(
        out_.tree.entries.begin(), out_.tree.entries.end(),
        [&](const TreeEntry& entry) { return entry.is_file() && !there.contains(entry.digest.hex()); });
    if (missing > 0)
      throw Error(Errc::io, "the store is too small for '" + request_.root + "': " + std::to_string(missing) +
                                " of " + std::to_string(out_.tree.files()) +
                                " files were evicted again; raise KILN_CACHE_MAX_SIZE, of which blobs of one "
                                "space take at most half");
  }

  const CaptureRequest& request_;
  runtime::BlobSpace& files_;
  base::Fd root_;
  Captured out_;
  std::map<std::string, const TreeEntry*> last_;
  std::set<std::string> there_, checked_;
  std::vector<runtime::BlobSpace::Item> batch_;
  std::uint64_t batch_bytes_ = 0;
};

}  // namespace

Captured capture(const CaptureRequest& request, runtime::BlobSpace& files) {
  return Capture(request, files).run();
}

}  // namespace kiln::cli
