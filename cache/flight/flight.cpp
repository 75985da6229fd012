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

[[noreturn]] void refuse_lock(const std::string& path, const std::string& why) {
  throw Error(Errc::io, "lock file " + path + ": " + why);
}

struct stat status(const FdPool::Lease& fd, const std::string& path) {
  struct stat st {};
  if (!fd) refuse_lock(path, errno == ELOOP ? "is a symlink; refused" : std::strerror(errno));
  if (::fstat(fd.get(), &st) != 0) refuse_lock(path, std::strerror(errno));
  return st;
}

/// Throws Error(io) unless the descriptor is of a regular file that belongs to this user.
struct stat own_status(const FdPool::Lease& fd, const std::string& path) {
  const struct stat st = status(fd, path);
  if (!S_ISREG(st.st_mode)) refuse_lock(path, "not a regular file; refused");
  if (st.st_uid != ::geteuid())
    refuse_lock(path, "belongs to uid " + std::to_string(st.st_uid) + "; refused");
  return st;
}

bool names(const std::string& path, const struct stat& held) noexcept {
  struct stat now {};
  return ::stat(path.c_str(), &now) == 0 && now.st_dev == held.st_dev && now.st_ino == held.st_ino;
}

/// Leases a descriptor of the file that `path` names now. A pooled one may belong to a file that was replaced
/// meanwhile, also while `lock` waited; such a descriptor is discarded, and the next one is tried. Returns
/// nothing when `lock(fd)` returned nothing. Throws Error(io) when the file is not usable.
template <typename Lock>
std::optional<LockedByte> lease_current(FdPool& pool, const std::string& path,
                                        struct stat (*status_of)(const FdPool::Lease&, const std::string&),
                                        Lock lock) {
  for (int attempt = 0; attempt < kReplacedLimit; ++attempt) {
    LockedByte byte{pool.lease(), {}};
    const struct stat held = status_of(byte.fd, path);
    std::optional<RangeLock> locked = lock(byte.fd.get());
    if (!locked) return std::nullopt;
    byte.lock = std::move(*locked);
    if (names(path, held)) return byte;
    byte.lock.release();
    byte.fd.discard();
  }
  refuse_lock(path, "is replaced again and again; does something clean the directory?");
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
  data_file_ = std::make_unique<FdPool>(data_path_, O_RDWR | O_NONBLOCK, FdPool::Keep::none_yet);
}

FlightFile::~FlightFile() = default;

/// Calls `use` with each candidate until a call returns. Throws Error(io) with all reasons when none does.
template <typename Use>
decltype(auto) FlightFile::first_usable(Use use) {
  std::string reasons;
  for (const auto& candidate : candidates_) {
    try {
      return use(*candidate);
    } catch (const Error& error) {  // the file is not usable, or its filesystem has no locks
      reasons += (reasons.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  throw Error(Errc::io, reasons.empty() ? "there is no directory for a lock file" : reasons);
}

std::shared_ptr<FlightFile> FlightFile::open(const FlightPlaces& places) {
  std::shared_ptr<FlightFile> file(new FlightFile(places));
  file->usable();
  return file;
}

FlightFile::Candidate& FlightFile::usable() {
  return first_usable([](Candidate& candidate) -> Candidate& {
    own_status(candidate.locks.lease(), candidate.path);
    return candidate;
  });
}

std::string FlightFile::path() {
  try {
    return usable().path;
  } catch (const Error&) {
    return candidates_.empty() ? "" : candidates_.front()->path;
  }
}

FdPool::Lease FlightFile::lease() {
  return first_usable([](Candidate& candidate) {
    return std::move(
        lease_current(candidate.locks, candidate.path, own_status, [](int) { return RangeLock(); })->fd);
  });
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
  return first_usable([&](Candidate& candidate) {
    Wait wait(key, candidate, deadline, cancelled, on_wait, subject);
    return take_at(candidate, key, wait);
  });
}

FlightFile::Taken FlightFile::take_at(Candidate& candidate, const Key& key, Wait& wait) {
  const auto lock = [&wait, offset = flight_offset(key)](int fd) { return wait.lock(fd, offset); };
  const auto ended = [&wait] { return Taken{wait.end(), nullptr, wait.waited(), wait.error()}; };
  auto byte = lease_current(candidate.locks, candidate.path, own_status, lock);
  if (!byte) return ended();
  auto flight = std::make_shared<Flight>(key);
  flight->file_ = shared_from_this();
  flight->own_ = std::move(*byte);
  if (data_file_) {
    try {
      auto data_byte = lease_current(*data_file_, data_path_, status, lock);
      if (!data_byte) return ended();
      flight->data_ = std::move(*data_byte);
    } catch (const Error&) {  // data.mdb is read-only, absent, or has no locks: the flight does without
    }
  }
  if (wait.failed()) return ended();
  flight->board_ = &candidate.board;
  return {End::taken, std::move(flight), wait.waited(), {}};
}

Flight::~Flight() {
  if (entry_) ended(FlightState::unpublished, {});
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
