#include "cache/board.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/file_size_signal.hpp"
#include "base/hash.hpp"
#include "base/wire.hpp"

namespace kiln::cache {
namespace {

constexpr std::uint32_t kMagic = 0x4452424b, kFormat = 1;  // "KBRD"
constexpr std::int64_t kSlots = 512, kWays = 4, kSlotBytes = 40 << 10;
constexpr std::size_t kHeadBytes = 20, kTextLimit = 1024;
constexpr std::int64_t kMemoryMs = 15 * 60 * 1000;

std::int64_t clock_us(clockid_t clock) noexcept {
  timespec now{};
  ::clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}
std::int64_t boot_ms() noexcept { return clock_us(CLOCK_BOOTTIME) / 1000; }

std::uint64_t own_pid_namespace() noexcept {
  struct stat st {};
  return ::stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::string_view raw(const Digest& digest) noexcept {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

std::string encode(const BoardEntry& e, std::uint64_t salt) {
  base::Writer body;
  body.str().append(raw(e.key.specialisation)).append(raw(e.key.toolchain));
  body.number(e.flight).number(e.state).number(e.without_record).number(e.pid).number(e.pid_namespace);
  body.number(e.started_unix_ms).number(e.started_ms).number(e.ended_ms);
  body.bytes(std::string_view(e.host).substr(0, kTextLimit));
  body.bytes(std::string_view(e.subject).substr(0, kTextLimit));
  body.bytes(e.error.size() <= BoardEntry::kErrorLimit ? std::string_view(e.error) : std::string_view());
  base::Writer out;
  out.number(kMagic).number(kFormat).number(static_cast<std::uint32_t>(body.str().size()));
  out.number(base::hash64(body.str()) ^ salt);
  out.str() += body.str();
  return std::move(out.str());
}

/// Throws base::Malformed.
BoardEntry decode(std::string_view body) {
  base::Reader in(body);
  BoardEntry e;
  for (Digest* half : {&e.key.specialisation, &e.key.toolchain}) {
    const std::string_view bytes = in.take(half->bytes.size());
    std::copy(bytes.begin(), bytes.end(), half->bytes.begin());
  }
  e.flight = in.number<std::uint64_t>();
  const auto state = in.number<std::uint32_t>();
  if (state > static_cast<std::uint32_t>(FlightState::unpublished)) throw base::Malformed("state");
  e.state = static_cast<FlightState>(state);
  e.without_record = in.number<std::uint32_t>();
  e.pid = in.number<std::int32_t>();
  e.pid_namespace = in.number<std::uint64_t>();
  e.started_unix_ms = in.number<std::int64_t>();
  e.started_ms = in.number<std::int64_t>();
  e.ended_ms = in.number<std::int64_t>();
  e.host = in.string(kTextLimit);
  e.subject = in.string(kTextLimit);
  e.error = in.string(BoardEntry::kErrorLimit);
  return e;
}

bool read_exactly(int fd, char* to, std::size_t size, std::int64_t at) noexcept {
  return ::pread(fd, to, size, at) == static_cast<ssize_t>(size);
}

std::int64_t first_slot(const Key& key) {
  std::string bytes(raw(key.toolchain));
  bytes.append(raw(key.specialisation));  // another order than the lock's: two keys seldom share both
  return static_cast<std::int64_t>(base::hash64(bytes) % kSlots);
}

/// Writing beyond the file-size limit would be SIGXFSZ, which ends a process by default.
bool within_file_size_limit(std::int64_t end) noexcept {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
         static_cast<std::uint64_t>(end) <= limit.rlim_cur;
}

}  // namespace

std::uint32_t BoardEntry::endings_without_record() const noexcept {
  const std::int64_t age = boot_ms() - std::max(started_ms, ended_ms);
  return age < 0 || age > kMemoryMs ? 0 : without_record;  // below 0: of another boot
}

double BoardEntry::seconds_since_start() const noexcept {
  return static_cast<double>(std::max<std::int64_t>(0, boot_ms() - started_ms)) / 1000;
}

std::string BoardEntry::who() const {
  return "pid " + std::to_string(pid) + (host.empty() ? "" : " on " + host) +
         (pid_namespace == own_pid_namespace() ? "" : " (of another PID namespace)");
}

Board::Board(std::string path, std::uint64_t salt)
    : path_(std::move(path)), salt_(salt), pool_(path_, O_RDWR | O_NOFOLLOW | O_NONBLOCK) {}

/// A descriptor of the regular file of ours that the path names now; an invalid one when there is none.
FdPool::Lease Board::open(bool create) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    FdPool::Lease fd = pool_.lease();
    if (!fd && errno == ENOENT && create) {
      const base::Fd made(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      continue;
    }
    struct stat st {
    }, at_path{};
    if (!fd || ::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != ::geteuid()) return {};
    if (::lstat(path_.c_str(), &at_path) == 0 && at_path.st_ino == st.st_ino && at_path.st_dev == st.st_dev)
      return fd;
    fd.discard();
  }
  return {};
}

/// Nothing for an empty, torn or foreign slot.
std::optional<BoardEntry> Board::read_slot(int fd, std::int64_t slot) const {
  char head[kHeadBytes];
  if (!read_exactly(fd, head, sizeof head, slot * kSlotBytes)) return std::nullopt;
  base::Reader in({head, sizeof head});
  if (in.number<std::uint32_t>() != kMagic || in.number<std::uint32_t>() != kFormat) return std::nullopt;
  const auto size = in.number<std::uint32_t>();
  const auto sum = in.number<std::uint64_t>();
  if (size > kSlotBytes - kHeadBytes) return std::nullopt;
  std::string body(size, '\0');
  if (!read_exactly(fd, body.data(), size, slot * kSlotBytes + static_cast<std::int64_t>(kHeadBytes)))
    return std::nullopt;
  if ((base::hash64(body) ^ salt_) != sum) return std::nullopt;
  try {
    return decode(body);
  } catch (const base::Malformed&) {
    return std::nullopt;
  }
}

std::optional<BoardEntry> Board::find(int fd, const Key& key, std::int64_t& slot) {
  for (std::int64_t way = 0; way < kWays; ++way) {
    slot = (first_slot(key) + way) % kSlots;
    if (auto entry = read_slot(fd, slot); entry && entry->key == key) return entry;
  }
  return std::nullopt;
}

/// The key's own slot, else an empty one, else the one whose flight is the longest past.
std::int64_t Board::slot_for(int fd, const Key& key) {
  std::int64_t own = 0, best = first_slot(key);
  if (find(fd, key, own)) return own;
  std::uint64_t oldest = ~std::uint64_t{0};
  for (std::int64_t way = 0; way < kWays; ++way) {
    const std::int64_t slot = (first_slot(key) + way) % kSlots;
    const auto entry = read_slot(fd, slot);
    if (!entry) return slot;
    if (entry->flight < oldest) oldest = entry->flight, best = slot;
  }
  return best;
}

std::optional<BoardEntry> Board::read(const Key& key) noexcept try {
  const FdPool::Lease fd = open(false);
  std::int64_t slot = 0;
  return fd ? find(fd.get(), key, slot) : std::nullopt;
} catch (...) {
  return std::nullopt;
}

std::vector<BoardEntry> Board::read_all() noexcept try {
  std::vector<BoardEntry> out;
  const FdPool::Lease fd = open(false);
  if (!fd) return out;
  for (std::int64_t slot = 0; slot < kSlots; ++slot)
    if (auto entry = read_slot(fd.get(), slot)) out.push_back(std::move(*entry));
  return out;
} catch (...) {
  return {};
}

BoardEntry Board::begin(const Key& key, std::string_view subject) noexcept {
  BoardEntry now;
  now.key = key;
  now.flight = static_cast<std::uint64_t>(clock_us(CLOCK_BOOTTIME));
  now.started_unix_ms = clock_us(CLOCK_REALTIME) / 1000;
  now.started_ms = boot_ms();
  now.pid = ::getpid();
  now.pid_namespace = own_pid_namespace();
  try {
    if (const auto before = read(key)) {
      now.flight = std::max(now.flight, before->flight + 1);
      now.without_record = before->endings_without_record();
      if (before->state == FlightState::compiling) ++now.without_record;
    }
    now.host = host_name();
    now.subject = subject;
  } catch (...) {  // no memory for the texts
  }
  write(now);
  return now;
}

void Board::end(BoardEntry entry, FlightState state, std::string_view error) noexcept {
  if (const auto now = read(entry.key); now && now->flight > entry.flight) return;
  entry.state = state;
  entry.ended_ms = boot_ms();
  entry.without_record = state == FlightState::published ? 0 : entry.without_record + 1;
  try {
    entry.error = error;
  } catch (...) {
  }
  write(entry);
}

void Board::write(const BoardEntry& entry) noexcept try {
  const FdPool::Lease fd = open(true);
  if (!fd) return;
  const std::string bytes = encode(entry, salt_);
  // Again elsewhere when another key's holder took the same slot in the same moment.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const std::int64_t at = slot_for(fd.get(), entry.key) * kSlotBytes;
    if (!within_file_size_limit(at + static_cast<std::int64_t>(bytes.size()))) return;
    const base::NoFileSizeSignal no_signal;
    if (::pwrite(fd.get(), bytes.data(), bytes.size(), at) != static_cast<ssize_t>(bytes.size())) return;
    std::int64_t slot = 0;
    if (find(fd.get(), entry.key, slot)) return;
  }
} catch (...) {
}

}  // namespace kiln::cache
