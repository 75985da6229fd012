#include "cache/flight/board.hpp"

#include <algorithm>

#include "base/hash.hpp"
#include "base/wire.hpp"

namespace kiln::cache {
namespace {

constexpr std::uint32_t kBoardMagic = 0x4452424b;  // "KBRD"
constexpr std::int64_t kSlots = 512, kWays = 4, kSlotBytes = 40 << 10;
static_assert(kSlots * kSlotBytes == Board::kEnd);
constexpr std::size_t kBodyLimit = kSlotBytes - CellFile::kHeadBytes;
constexpr std::int64_t kMemoryMs = 15 * 60 * 1000;

std::int64_t boot_ms() noexcept { return boot_us() / 1000; }

std::string_view raw(const Digest& digest) noexcept {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

std::string encode(const BoardEntry& e) {
  base::Writer body;
  encode_key(body, e.key);
  body.number(e.flight).number(e.state).number(e.without_record).number(e.pid).number(e.pid_namespace);
  body.number(e.started_unix_ms).number(e.started_ms).number(e.ended_ms);
  body.bytes(std::string_view(e.host).substr(0, kSlotTextLimit));
  body.bytes(std::string_view(e.subject).substr(0, kSlotTextLimit));
  body.bytes(e.error.size() <= BoardEntry::kErrorLimit ? std::string_view(e.error) : std::string_view());
  return std::move(body.str());
}

/// Throws base::Malformed.
BoardEntry decode_entry(std::string_view body) {
  base::Reader in(body);
  BoardEntry e;
  e.key = decode_key(in);
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
  e.host = in.string(kSlotTextLimit);
  e.subject = in.string(kSlotTextLimit);
  e.error = in.string(BoardEntry::kErrorLimit);
  return e;
}

std::int64_t first_slot(const Key& key) {
  std::string bytes(raw(key.toolchain));
  bytes.append(raw(key.specialisation));  // not the lock's order: two keys seldom share slot and lock byte
  return static_cast<std::int64_t>(base::hash64(bytes) % kSlots);
}

}  // namespace

std::uint32_t BoardEntry::endings_without_record() const noexcept {
  const std::int64_t age = boot_ms() - std::max(started_ms, ended_ms);
  return age < 0 || age > kMemoryMs ? 0 : without_record;  // below 0: from another boot
}

double BoardEntry::seconds_since_start() const noexcept {
  return static_cast<double>(std::max<std::int64_t>(0, boot_ms() - started_ms)) / 1000;
}

std::optional<BoardEntry> Board::read_slot(int fd, std::int64_t slot) const {
  const auto body = file_.read(fd, slot * kSlotBytes, kBoardMagic, kBodyLimit);
  if (!body) return std::nullopt;
  try {
    return decode_entry(*body);
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

/// Chooses the key's own slot, else an empty slot, else the slot with the oldest flight.
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
  const FdPool::Lease fd = file_.open(CellFile::Create::no);
  std::int64_t slot = 0;
  return fd ? find(fd.get(), key, slot) : std::nullopt;
} catch (...) {
  return std::nullopt;
}

std::vector<BoardEntry> Board::read_all() noexcept try {
  std::vector<BoardEntry> out;
  const FdPool::Lease fd = file_.open(CellFile::Create::no);
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
  now.flight = static_cast<std::uint64_t>(boot_us());
  now.started_unix_ms = unix_ms();
  now.started_ms = boot_ms();
  try {
    static_cast<ProcessIdentity&>(now) = ProcessIdentity::self();
    if (const auto before = read(key)) {
      now.flight = std::max(now.flight, before->flight + 1);
      now.without_record = before->endings_without_record();
      if (before->state == FlightState::compiling) ++now.without_record;
    }
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
  const FdPool::Lease fd = file_.open(CellFile::Create::yes);
  if (!fd) return;
  const std::string body = encode(entry);
  // When another key's holder took the same slot at the same moment, the entry is written again elsewhere.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (!file_.write(fd.get(), slot_for(fd.get(), entry.key) * kSlotBytes, kBoardMagic, body)) return;
    std::int64_t slot = 0;
    if (find(fd.get(), entry.key, slot)) return;
  }
} catch (...) {
}

}  // namespace kiln::cache
