#include "cache/flight.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/hash.hpp"
#include "base/log.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr int kReplacedLimit = 100;        // a file that is replaced this often during one take is not usable
constexpr auto kSilence = 2s;              // before a waiter says whom it waits for
constexpr std::uint32_t kEndingsSeen = 2;  // so many holders without a record, and nobody waits any more

/// Throws Error(io) unless the descriptor is of a regular file that belongs to this user.
struct stat checked(const FdPool::Lease& fd, const std::string& path) {
  const auto refuse = [&path](const std::string& why) {
    throw Error(Errc::io, "lock file " + path + ": " + why);
  };
  if (!fd) refuse(errno == ELOOP ? "is a symlink; refused" : std::strerror(errno));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) refuse(std::strerror(errno));
  if (!S_ISREG(st.st_mode)) refuse("not a regular file; refused");
  if (st.st_uid != ::geteuid()) refuse("belongs to uid " + std::to_string(st.st_uid) + "; refused");
  return st;
}

bool names(const std::string& path, const struct stat& held) noexcept {
  struct stat now {};
  return ::stat(path.c_str(), &now) == 0 && now.st_dev == held.st_dev && now.st_ino == held.st_ino;
}

std::int64_t offset_of(const Key& key) {
  std::string bytes(reinterpret_cast<const char*>(key.specialisation.bytes.data()), 16);
  bytes.append(reinterpret_cast<const char*>(key.toolchain.bytes.data()), 16);
  return static_cast<std::int64_t>(base::hash64(bytes) >> 2);
}

/// When the directory was made; 0 where the filesystem does not tell.
std::uint64_t birth_of(const std::string& directory) noexcept {
  struct statx st {};
  if (directory.empty() || ::statx(AT_FDCWD, directory.c_str(), 0, STATX_BTIME, &st) != 0) return 0;
  if ((st.stx_mask & STATX_BTIME) == 0) return 0;
  return static_cast<std::uint64_t>(st.stx_btime.tv_sec) * 1'000'000'000 + st.stx_btime.tv_nsec;
}

struct FileNames {
  std::string lock, board;
};
/// In the order in which they are tried.
std::vector<FileNames> names_of(const FlightPlaces& places) {
  std::vector<FileNames> out;
  const std::string name = "/kiln-" + std::to_string(::geteuid()) + '-' + places.store_identity;
  const std::string in_memory = places.shared_memory + name, beside = places.store_place + "/flight";
  if (!places.shared_memory.empty()) out.push_back({in_memory + ".flight", in_memory + ".board"});
  if (!places.store_place.empty()) out.push_back({beside + ".lock", beside + ".board"});
  return out;
}

}  // namespace

struct FlightFile::Place {
  Place(std::string lock, std::string board_path, std::uint64_t salt)
      : path(std::move(lock)),
        locks(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK),
        board(std::move(board_path), salt) {}
  std::string path;
  FdPool locks;
  Board board;
};

/// One asker's wait for one key: what the board said when it began, and whether to go on.
class FlightFile::Wait {
 public:
  Wait(const Key& key, Place& place, base::Deadline deadline, const std::atomic<bool>* cancelled,
       const std::function<void()>& on_wait)
      : key_(key),
        place_(place),
        deadline_(deadline),
        cancelled_(cancelled),
        on_wait_(on_wait),
        at_arrival_(place.board.read(key)) {}

  /// Polls until the byte is locked; otherwise `end()` says why not.
  bool lock(int fd, std::int64_t offset, RangeLock& out) {
    base::poll_until(deadline_, [&] {
      auto got = RangeLock::acquire(fd, offset, RangeLock::Mode::exclusive, base::Deadline::after(0s));
      if (got) {
        out = std::move(*got);
        end_ = End::taken;
        return true;
      }
      if (!waited_ && on_wait_) on_wait_();
      waited_ = true;
      return decided();
    });
    return end_ == End::taken;
  }
  /// Whether a flight that was on when this wait began, or a later one, failed with words for us.
  bool failed() {
    auto now = place_.board.read(key_);
    return now && failed(*now);
  }

  End end() const noexcept { return end_; }
  bool waited() const noexcept { return waited_; }
  std::string error() { return std::move(error_); }

 private:
  bool decided() {
    end_ = End::timed_out;
    if (cancelled_ && cancelled_->load(std::memory_order_relaxed)) return end_ = End::cancelled, true;
    const auto now = place_.board.read(key_);
    if (now && failed(*now)) return true;
    if (now && now->endings_without_record() >= kEndingsSeen) return end_ = End::left, true;
    if (!said_ && base::Clock::now() - since_ >= kSilence) say(now);
    return false;
  }

  bool failed(const BoardEntry& now) {
    if (now.state != FlightState::failed || now.error.empty()) return false;
    if (at_arrival_) {
      const bool was_on = at_arrival_->state == FlightState::compiling;
      if (now.flight < at_arrival_->flight || (now.flight == at_arrival_->flight && !was_on)) return false;
    } else if (!waited_) {
      return false;
    }
    error_ = now.error;
    end_ = End::failed;
    return true;
  }

  void say(const std::optional<BoardEntry>& now) {
    said_ = true;
    std::string whom = "another process that compiles " + key_.hex();
    if (now && now->state == FlightState::compiling) {
      char seconds[32];
      std::snprintf(seconds, sizeof seconds, "%.0f", now->seconds_since_start());
      whom = now->who() + ", which has been compiling " + now->subject + " for " + seconds + " s (key " +
             key_.hex() + ")";
    }
    base::warn("waiting for 2 s for " + whom + "; lock " + place_.path);
  }

  const Key key_;
  Place& place_;
  const base::Deadline deadline_;
  const std::atomic<bool>* cancelled_;
  const std::function<void()>& on_wait_;
  const std::optional<BoardEntry> at_arrival_;
  const base::Clock::time_point since_ = base::Clock::now();
  bool waited_ = false, said_ = false;
  End end_ = End::timed_out;
  std::string error_;
};

FlightFile::FlightFile(const FlightPlaces& places) {
  const std::uint64_t salt = birth_of(places.store_place);
  for (const FileNames& names : names_of(places))
    places_.push_back(std::make_unique<Place>(names.lock, names.board, salt));
  if (places.store_place.empty()) return;
  data_path_ = places.store_place + "/data.mdb";
  data_file_ = std::make_unique<FdPool>(data_path_, O_RDWR | O_NONBLOCK);
}

FlightFile::~FlightFile() = default;

std::shared_ptr<FlightFile> FlightFile::open(const FlightPlaces& places) {
  std::shared_ptr<FlightFile> file(new FlightFile(places));
  std::string reasons;
  for (const auto& place : file->places_) {
    try {
      checked(place->locks.lease(), place->path);
      return file;
    } catch (const Error& error) {
      reasons += (reasons.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  throw Error(Errc::io, reasons.empty() ? "no directory for a lock file" : reasons);
}

std::string FlightFile::path() {
  for (const auto& place : places_) {
    try {
      checked(place->locks.lease(), place->path);
      return place->path;
    } catch (const Error&) {
    }
  }
  return places_.empty() ? "" : places_.front()->path;
}

/// A pooled descriptor may be of a file that was replaced: those are given up.
FdPool::Lease FlightFile::lease() {
  std::string reasons;
  for (const auto& place : places_) {
    try {
      for (int attempt = 0; attempt < kReplacedLimit; ++attempt) {
        FdPool::Lease fd = place->locks.lease();
        if (names(place->path, checked(fd, place->path))) return fd;
        fd.discard();
      }
    } catch (const Error& error) {
      reasons += (reasons.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  throw Error(Errc::io, reasons.empty() ? "the lock file is replaced again and again" : reasons);
}

std::vector<BoardEntry> FlightFile::board() {
  std::vector<BoardEntry> out;
  for (const auto& place : places_)
    for (BoardEntry& entry : place->board.read_all()) out.push_back(std::move(entry));
  return out;
}

FlightFile::Taken FlightFile::take(const Key& key, base::Deadline deadline,
                                   const std::atomic<bool>* cancelled, const std::function<void()>& on_wait) {
  std::string reasons;
  for (const auto& place : places_) {
    Wait wait(key, *place, deadline, cancelled, on_wait);
    try {
      return take_at(*place, key, wait);
    } catch (const Error& error) {  // the file became unusable, or the filesystem has no locks
      reasons += (reasons.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  throw Error(Errc::io, reasons);
}

FlightFile::Taken FlightFile::take_at(Place& place, const Key& key, Wait& wait) {
  const std::int64_t offset = offset_of(key);
  const auto ended = [&] { return Taken{wait.end(), nullptr, wait.waited(), wait.error()}; };
  for (int attempt = 0; attempt < kReplacedLimit; ++attempt) {
    auto flight = std::make_shared<Flight>(key);
    flight->file_ = shared_from_this();
    flight->fd_ = place.locks.lease();
    const struct stat held = checked(flight->fd_, place.path);
    if (!wait.lock(flight->fd_.get(), offset, flight->lock_)) return ended();
    if (!names(place.path, held)) {
      flight->lock_.release();
      flight->fd_.discard();
      continue;
    }
    if (!take_in_data_file(offset, wait, *flight)) return ended();
    if (wait.failed()) return ended();
    flight->board_ = &place.board;
    return {End::taken, std::move(flight), wait.waited(), {}};
  }
  throw Error(Errc::io, "lock file " + place.path +
                            ": is replaced again and again; does something clean the directory?");
}

/// Goes on without that half when the file cannot be opened for writing or has no such locks. False: the wait
/// ended first.
bool FlightFile::take_in_data_file(std::int64_t offset, Wait& wait, Flight& flight) {
  for (int attempt = 0; data_file_ && attempt < kReplacedLimit; ++attempt) {
    FdPool::Lease fd = data_file_->lease();
    struct stat held {};
    if (!fd || ::fstat(fd.get(), &held) != 0) return true;
    RangeLock lock;
    try {
      if (!wait.lock(fd.get(), offset, lock)) {
        fd.discard();
        return false;
      }
    } catch (const Error&) {
      fd.discard();
      return true;
    }
    if (names(data_path_, held)) {
      flight.data_fd_ = std::move(fd);
      flight.data_lock_ = std::move(lock);
      return true;
    }
    lock.release();
    fd.discard();  // of a file that gc replaced: it must not keep the space
  }
  return true;
}

std::optional<BoardEntry> flight_under_way(const FlightPlaces& places, const Key& key) noexcept try {
  for (const FileNames& names : names_of(places)) {
    auto entry = Board(names.board, birth_of(places.store_place)).read(key);
    if (!entry || entry->state != FlightState::compiling) continue;
    const base::Fd fd(::open(names.lock.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (fd && RangeLock::excluded(fd.get(), offset_of(key), RangeLock::Mode::exclusive)) return entry;
  }
  return std::nullopt;
} catch (...) {  // no memory
  return std::nullopt;
}

Flight::~Flight() {
  if (entry_) ended(FlightState::unpublished, {});
  data_lock_.release();
  data_fd_.discard();  // not pooled: an idle descriptor would keep a replaced file's space
}

void Flight::compiling(std::string_view subject) noexcept {
  if (board_ && generation_ == base::process_generation()) entry_ = board_->begin(key_, subject);
}

void Flight::ended(FlightState state, std::string_view error) noexcept {
  if (!entry_ || generation_ != base::process_generation()) return;
  BoardEntry entry = std::move(*entry_);
  entry_.reset();
  board_->end(std::move(entry), state, error);
}

}  // namespace kiln::cache
