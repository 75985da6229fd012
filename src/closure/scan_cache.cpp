#include "closure/scan_cache.hpp"

#include <sys/stat.h>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "base/hash.hpp"
#include "base/process.hpp"
#include "base/quote.hpp"
#include "closure/scan_memo.hpp"
#include "closure/trace_memo.hpp"
#include "kiln/error.hpp"

namespace kiln::source {
namespace {

constexpr std::size_t kMaxFile = std::size_t{64} << 20;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(Errc::source, "included file " + base::quote(path, 4096) + ' ' + why);
}

}  // namespace

struct ScanCache::Impl {
  /// A forked child starts with an empty state, because its copy of the mutex may be held by a thread
  /// that it does not have.
  struct State {
    std::mutex mutex;
    std::unordered_map<std::string, Scanned> files;  // hashed by this process
    std::optional<ScanMemo> memo;
    std::optional<ClosureMemo> closures;
  };
  explicit Impl(std::string file) : memo_file(std::move(file)) {}
  ScanMemo& memo(State& s) const { return s.memo ? *s.memo : s.memo.emplace(memo_file); }
  ClosureMemo& closures(State& s) const {
    return s.closures ? *s.closures : s.closures.emplace(memo_file.empty() ? "" : memo_file + ".closures");
  }
  const std::string memo_file;
  base::PerProcess<State> state;
};

ScanCache::ScanCache(std::string memo_file) : impl_(std::make_unique<Impl>(std::move(memo_file))) {}
ScanCache::~ScanCache() = default;

bool ScanCache::remembers() const noexcept { return !impl_->memo_file.empty(); }

std::shared_ptr<const std::string> ScanCache::trace(const Digest& key) {
  Impl::State& state = impl_->state.get();
  const std::lock_guard lock(state.mutex);
  return impl_->closures(state).find(key);
}

void ScanCache::keep_trace(const Digest& key, std::string trace) {
  Impl::State& state = impl_->state.get();
  const std::lock_guard lock(state.mutex);
  impl_->closures(state).add(key, std::move(trace));
}

void ScanCache::save() noexcept {
  Impl::State& state = impl_->state.get();
  const std::lock_guard lock(state.mutex);
  impl_->memo(state).save();
  impl_->closures(state).save();
}

std::optional<ScanCache::Scanned> ScanCache::look(const std::string& path, bool toolkit, Trust trust) {
  Impl::State& state = impl_->state.get();
  std::optional<Scanned> known;
  {
    const std::lock_guard lock(state.mutex);
    if (const auto found = state.files.find(path); found != state.files.end())
      known = found->second;
    else if (toolkit && trust == Trust::memo)
      known = impl_->memo(state).find(path);
  }
  if (known && base::FileStamp::of(path) == known->stamp) return known;

  auto content = base::read_file(path, kMaxFile);
  if (!content) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) return std::nullopt;
    if (error == EFBIG) refuse(path, "is larger than 64 MB");
    struct stat st;
    // The file does not exist, or lies below a directory that cannot be searched: the compiler
    // does not find it either.
    if (::stat(path.c_str(), &st) != 0 || S_ISDIR(st.st_mode)) return std::nullopt;
    if (!S_ISREG(st.st_mode)) refuse(path, "is not a regular file");
    refuse(path, std::string("cannot be read: ") + std::strerror(error));
  }
  Scanned scanned{content->stamp, base::digest_of(content->bytes),
                  std::make_shared<const ScanResult>(scan_includes(content->bytes)),
                  content->stamp.settled()};
  if (scanned.settled) {
    const std::lock_guard lock(state.mutex);
    state.files.insert_or_assign(path, scanned);
    if (toolkit) impl_->memo(state).add(path, scanned);
  }
  return scanned;
}

}  // namespace kiln::source
