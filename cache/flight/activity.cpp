#include "cache/flight/activity.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "base/fd.hpp"
#include "cache/flight/paths.hpp"
#include "cache/lock/gate.hpp"

namespace kiln::cache {
namespace {

constexpr int kMostSlots = 4096;

/// Opens a regular file of `owner`, to inspect its locks. Otherwise returns an invalid descriptor; `why` then
/// names the reason, and is empty for an absent file.
base::Fd open_locks(const std::string& path, uid_t owner, std::string& why) {
  base::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat st {};
  if (!fd)
    why = errno == ENOENT ? "" : std::strerror(errno);
  else if (::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode))
    why = "not a regular file";
  else if (st.st_uid != owner)
    why = "belongs to uid " + std::to_string(st.st_uid);
  else
    return fd;
  return base::Fd();
}

bool writing(int fd) noexcept { return RangeLock::excluded(fd, kGateOffset + 2, RangeLock::Mode::exclusive); }

class Look {
 public:
  Look(const std::string& place, const std::string& shared_memory, Activity& out) : out_(out) {
    struct stat st {};
    if (place.empty() || ::stat(place.c_str(), &st) != 0) return;
    salt_ = birth_of(place), owner_ = st.st_uid;
    const std::string identity = std::to_string(st.st_dev) + '-' + std::to_string(st.st_ino);
    const std::string stem = flight_stem(shared_memory, owner_, identity);
    look_at(stem + ".flight", stem + ".board");
    look_at(place + "/flight.lock", place + "/flight.board");
    look_at_data(place + "/data.mdb");
    const auto longer = [](const auto& a, const auto& b) { return a.started_ms < b.started_ms; };
    std::sort(out_.waiting.begin(), out_.waiting.end(), longer);
    std::sort(out_.compiling.begin(), out_.compiling.end(),
              [&](const auto& a, const auto& b) { return longer(a.entry, b.entry); });
    std::sort(out_.finished.begin(), out_.finished.end(),
              [](const auto& a, const auto& b) { return a.ended_ms > b.ended_ms; });
  }

 private:
  void look_at(const std::string& lock_path, const std::string& board_path) {
    std::string why;
    const base::Fd fd = open_locks(lock_path, owner_, why);
    if (!why.empty()) out_.unseen.push_back(lock_path + ": " + why);
    if (!fd) return;
    out_.files.push_back(lock_path);
    Board board(board_path, salt_, owner_);
    std::set<std::int64_t> said;
    std::vector<BoardEntry> entries = board.read_all();
    const bool empty = entries.empty();
    for (BoardEntry& entry : entries) add(board, lock_path, fd.get(), std::move(entry), said);
    for (Waiter& waiter : Waiters(board).read_all()) out_.waiting.push_back(std::move(waiter));
    const std::vector<std::int64_t> flights = locks_held(fd.get(), 0, kSlotMark);
    for (const std::int64_t offset : flights)
      if (!said.contains(offset)) add_unnamed(lock_path, offset);
    if (empty && !flights.empty())
      out_.unseen.push_back(board_path + ": it has no entry for a compile whose lock is held");
    for (const std::int64_t offset : locks_held(fd.get(), kFirstSlot, kFirstSlot + kMostSlots))
      out_.slots.push_back(static_cast<int>(offset - kFirstSlot));
    out_.caller_waits |= RangeLock::excluded(fd.get(), kSlotMark, RangeLock::Mode::exclusive);
  }

  void add(Board& board, const std::string& file, int fd, BoardEntry entry, std::set<std::int64_t>& said) {
    if (entry.state != FlightState::compiling) return out_.finished.push_back(std::move(entry));
    const std::int64_t offset = flight_offset(entry.key);
    const bool held = RangeLock::excluded(fd, offset, RangeLock::Mode::exclusive);
    // The flight may have ended between the two reads; its entry then says so.
    if (!held) {
      if (auto now = board.read(entry.key); now && now->state != FlightState::compiling)
        return out_.finished.push_back(std::move(*now));
    }
    if (held) said.insert(offset), seen_.insert(offset);
    out_.compiling.push_back({std::move(entry), held, file});
  }

  void add_unnamed(const std::string& file, std::int64_t offset) {
    if (seen_.insert(offset).second) out_.unnamed.push_back({file, offset});
  }

  /// A flight locks the same byte in data.mdb. Flights of other containers may show up there alone.
  void look_at_data(const std::string& path) {
    std::string why;
    const base::Fd fd = open_locks(path, owner_, why);
    if (!why.empty()) out_.unseen.push_back(path + ": " + why);
    if (!fd) return;
    for (const std::int64_t offset : locks_held(fd.get(), 0, kGateOffset)) add_unnamed(path, offset);
    out_.data_file = path;
    out_.writing = writing(fd.get());
  }

  Activity& out_;
  std::uint64_t salt_ = 0;
  uid_t owner_ = 0;
  std::set<std::int64_t> seen_;  // offsets of held keys that are in `out_`
};

}  // namespace

std::optional<BoardEntry> flight_under_way(const std::string& place, const Key& key) noexcept try {
  for (Activity::Compile& compile : look_at(place).compiling)
    if (compile.held && compile.entry.key == key) return std::move(compile.entry);
  return std::nullopt;
} catch (...) {  // no memory
  return std::nullopt;
}

bool look_at_gate(const std::string& data_file) noexcept {
  const base::Fd fd(::open(data_file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return fd && writing(fd.get());
}

Activity look_at(const std::string& place, const std::string& shared_memory) {
  Activity out;
  const Look look(place, shared_memory, out);
  return out;
}

}  // namespace kiln::cache
