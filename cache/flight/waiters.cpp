#include "cache/flight/waiters.hpp"

#include <algorithm>

#include "base/hash.hpp"
#include "base/wire.hpp"

namespace kiln::cache {
namespace {

constexpr std::uint32_t kWaitersMagic = 0x4941574b;  // "KWAI"
constexpr std::int64_t kCells = 256, kCellBytes = 4096;
constexpr int kTries = 16;  // cells in which a free one is looked for

std::int64_t offset_of(std::int64_t cell) noexcept { return Board::kEnd + cell % kCells * kCellBytes; }

std::string encode(const Waiter& w) {
  base::Writer body;
  encode_key(body, w.key);
  body.number(w.wait_for).number(w.pid).number(w.pid_namespace).number(w.started_unix_ms);
  body.number(w.started_ms).bytes(std::string_view(w.host).substr(0, kSlotTextLimit));
  body.bytes(std::string_view(w.subject).substr(0, kSlotTextLimit));
  return std::move(body.str());
}

/// Throws base::Malformed.
Waiter decode_waiter(std::string_view body) {
  base::Reader in(body);
  Waiter w;
  w.key = decode_key(in);
  const auto wait_for = in.number<std::uint32_t>();
  if (wait_for > static_cast<std::uint32_t>(WaitFor::remote)) throw base::Malformed("for");
  w.wait_for = static_cast<WaitFor>(wait_for);
  w.pid = in.number<std::int32_t>();
  w.pid_namespace = in.number<std::uint64_t>();
  w.started_unix_ms = in.number<std::int64_t>();
  w.started_ms = in.number<std::int64_t>();
  w.host = in.string(kSlotTextLimit);
  w.subject = in.string(kSlotTextLimit);
  return w;
}

}  // namespace

double Waiter::seconds_since_start() const noexcept {
  return static_cast<double>(std::max<std::int64_t>(0, boot_us() / 1000 - started_ms)) / 1000;
}

ShownWaiter::ShownWaiter(CellFile& file, FdPool::Lease fd, RangeLock lock, std::int64_t at)
    : file_(file),
      generation_(base::process_generation()),
      fd_(std::move(fd)),
      lock_(std::move(lock)),
      at_(at) {}

ShownWaiter::~ShownWaiter() {
  // The cell is emptied first, because the next waiter locks it a moment before it writes.
  if (generation_ == base::process_generation()) file_.write(fd_.get(), at_, 0, {});
  lock_.release();
  fd_.discard();
}

std::unique_ptr<ShownWaiter> Waiters::show(WaitFor wait_for, const Key& key, std::string_view subject,
                                           std::int64_t since_ms) noexcept try {
  Waiter waiter;
  static_cast<ProcessIdentity&>(waiter) = ProcessIdentity::self();
  waiter.key = key, waiter.wait_for = wait_for, waiter.subject = subject;
  waiter.started_ms = since_ms;
  waiter.started_unix_ms = unix_ms() - (boot_us() / 1000 - since_ms);
  FdPool::Lease fd = file_.open(CellFile::Create::yes);
  if (!fd) return nullptr;
  const std::string body = encode(waiter);
  const auto first = static_cast<std::int64_t>(base::hash64(body) % kCells);
  const auto now = base::Deadline::after(base::Clock::duration::zero());
  for (std::int64_t cell = first; cell < first + kTries; ++cell) {
    auto lock = RangeLock::acquire(fd.get(), offset_of(cell), RangeLock::Mode::exclusive, now);
    if (!lock) continue;
    if (!file_.write(fd.get(), offset_of(cell), kWaitersMagic, body)) return nullptr;
    return std::unique_ptr<ShownWaiter>(
        new ShownWaiter(file_, std::move(fd), std::move(*lock), offset_of(cell)));
  }
  return nullptr;
} catch (...) {  // a filesystem without locks, no memory
  return nullptr;
}

std::vector<Waiter> Waiters::read_all() noexcept try {
  std::vector<Waiter> out;
  const FdPool::Lease fd = file_.open(CellFile::Create::no);
  if (!fd) return out;
  for (std::int64_t cell = 0; cell < kCells; ++cell) {
    const auto body = file_.read(fd.get(), offset_of(cell), kWaitersMagic, kCellBytes - CellFile::kHeadBytes);
    if (!body || !RangeLock::excluded(fd.get(), offset_of(cell), RangeLock::Mode::exclusive)) continue;
    try {
      out.push_back(decode_waiter(*body));
    } catch (const base::Malformed&) {
    }
  }
  std::sort(out.begin(), out.end(),
            [](const Waiter& a, const Waiter& b) { return a.started_ms < b.started_ms; });
  return out;
} catch (...) {
  return {};
}

}  // namespace kiln::cache
