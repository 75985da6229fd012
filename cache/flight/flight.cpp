#include "cache/flight/flight.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/log.hpp"
#include "cache/flight/paths.hpp"
#include "cache/flight/wait.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

using namespace std::chrono_literals;

constexpr int kReplacedLimit = 100;  // a file that is replaced this often during one take is not usable

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

}  // namespace

FlightFile::FlightFile(const FlightPlaces& places) {
  const std::uint64_t salt = birth_of(places.store_place);
  if (!places.shared_memory.empty()) {
    const std::string stem = flight_stem(places.shared_memory, ::geteuid(), places.store_identity);
    candidates_.push_back(std::make_unique<Candidate>(stem + ".flight", stem + ".board", salt));
  }
  if (places.store_place.empty()) return;
  candidates_.push_back(std::make_unique<Candidate>(places.store_place + "/flight.lock",
                                                    places.store_place + "/flight.board", salt));
  data_path_ = places.store_place + "/data.mdb";
  data_file_ = std::make_unique<FdPool>(data_path_, O_RDWR | O_NONBLOCK);
}

FlightFile::~FlightFile() = default;

std::shared_ptr<FlightFile> FlightFile::open(const FlightPlaces& places) {
  std::shared_ptr<FlightFile> file(new FlightFile(places));
  std::string reasons;
  for (const auto& candidate : file->candidates_) {
    try {
      checked(candidate->locks.lease(), candidate->path);
      return file;
    } catch (const Error& error) {
      reasons += (reasons.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  throw Error(Errc::io, reasons.empty() ? "there is no directory for a lock file" : reasons);
}

std::string FlightFile::path() {
  for (const auto& candidate : candidates_) {
    try {
      checked(candidate->locks.lease(), candidate->path);
      return candidate->path;
    } catch (const Error&) {
    }
  }
  return candidates_.empty() ? "" : candidates_.front()->path;
}

/// A pooled descriptor may belong to a file that was replaced; such a descriptor is discarded.
FdPool::Lease FlightFile::lease() {
  std::string reasons;
  for (const auto& candidate : candidates_) {
    try {
      for (int attempt = 0; attempt < kReplacedLimit; ++attempt) {
        FdPool::Lease fd = candidate->locks.lease();
        if (names(candidate->path, checked(fd, candidate->path))) return fd;
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
  for (const auto& candidate : candidates_)
    for (BoardEntry& entry : candidate->board.read_all()) out.push_back(std::move(entry));
  return out;
}

std::unique_ptr<ShownWaiter> FlightFile::show_waiting(WaitFor wait_for, std::string_view subject,
                                                      const Key& key) noexcept {
  for (const auto& candidate : candidates_)
    if (auto shown = candidate->waiters.show(wait_for, key, subject, boot_us() / 1000)) return shown;
  return nullptr;
}

FlightFile::Taken FlightFile::take(const Key& key, base::Deadline deadline,
                                   const std::atomic<bool>* cancelled, const std::function<void()>& on_wait,
                                   std::string_view subject) {
  std::string reasons;
  for (const auto& candidate : candidates_) {
    Wait wait(key, *candidate, deadline, cancelled, on_wait, subject);
    try {
      return take_at(*candidate, key, wait);
    } catch (const Error& error) {  // the file became unusable, or the filesystem has no locks
      reasons += (reasons.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  throw Error(Errc::io, reasons);
}

FlightFile::Taken FlightFile::take_at(Candidate& candidate, const Key& key, Wait& wait) {
  const std::int64_t offset = flight_offset(key);
  const auto ended = [&] { return Taken{wait.end(), nullptr, wait.waited(), wait.error()}; };
  for (int attempt = 0; attempt < kReplacedLimit; ++attempt) {
    auto flight = std::make_shared<Flight>(key);
    flight->file_ = shared_from_this();
    flight->fd_ = candidate.locks.lease();
    const struct stat held = checked(flight->fd_, candidate.path);
    if (!wait.lock(flight->fd_.get(), offset, flight->lock_)) return ended();
    if (!names(candidate.path, held)) {
      flight->lock_.release();
      flight->fd_.discard();
      continue;
    }
    if (!take_in_data_file(offset, wait, *flight)) return ended();
    if (wait.failed()) return ended();
    flight->board_ = &candidate.board;
    return {End::taken, std::move(flight), wait.waited(), {}};
  }
  throw Error(Errc::io, "lock file " + candidate.path +
                            ": is replaced again and again; does something clean the directory?");
}

/// Locks the key's byte in data.mdb. The flight does without this lock when the file cannot be opened for
/// writing or has no such locks. Returns false when the wait ended first.
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
    fd.discard();  // gc replaced its file; an open descriptor would keep the space
  }
  return true;
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
