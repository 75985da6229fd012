#include "closure/trace_memo.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/wire.hpp"
#include "closure/memo_file.hpp"

namespace kiln::source {
namespace {

constexpr std::string_view kTracesMagic = "kilncls1";
constexpr std::size_t kHead = 4096, kSums = kTracesMagic.size() + sizeof(std::uint64_t);
constexpr std::size_t kMaxTraces = 64;
constexpr std::uint64_t kMaxTraceBytes = std::uint64_t{16} << 20;

struct IndexRow {
  Digest key;
  std::uint64_t offset = 0, size = 0, checksum = 0;
};

std::string read_at(int fd, std::uint64_t offset, std::size_t size) {
  std::string out(size, '\0');
  const ssize_t n = ::pread(fd, out.data(), size, static_cast<off_t>(offset));
  out.resize(n == static_cast<ssize_t>(size) ? size : 0);
  return out;
}

/// The index of a file of this boot; empty for any other file.
std::vector<IndexRow> read_index(int fd) try {
  std::vector<IndexRow> out;
  const std::string head = read_at(fd, 0, kHead);
  base::Reader in(head);
  if (in.take(kTracesMagic.size()) != kTracesMagic) return {};
  const auto checksum = in.number<std::uint64_t>();
  if (base::hash64(std::string_view(head).substr(kSums)) != checksum) return {};
  const std::string boot = boot_id();
  if (boot.empty() || in.bytes() != boot) return {};
  in.list([&](base::Reader& r) {
    IndexRow& row = out.emplace_back();
    std::memcpy(row.key.bytes.data(), r.take(row.key.bytes.size()).data(), row.key.bytes.size());
    for (std::uint64_t* field : {&row.offset, &row.size, &row.checksum}) *field = r.number<std::uint64_t>();
    if (row.size > kMaxTraceBytes || row.offset > 2 * kMaxTraceBytes) throw base::Malformed("entry");
  });
  return out;
} catch (const base::Malformed&) {
  return {};
}

std::shared_ptr<const std::string> read_trace(int fd, const IndexRow& row) {
  auto trace = std::make_shared<const std::string>(read_at(fd, row.offset, row.size));
  return trace->size() == row.size && base::hash64(*trace) == row.checksum ? trace : nullptr;
}

}  // namespace

std::shared_ptr<const std::string> ClosureMemo::find(const Digest& key) {
  for (const Kept& kept : known_)
    if (kept.key == key) return kept.trace;
  if (file_.empty()) return nullptr;
  const base::Fd fd = open_memo(file_);
  if (!fd) return nullptr;
  for (const IndexRow& row : read_index(fd.get())) {
    if (row.key != key) continue;
    auto trace = read_trace(fd.get(), row);
    if (trace) known_.push_back({key, trace});
    return trace;
  }
  return nullptr;
}

void ClosureMemo::add(const Digest& key, std::string trace) {
  if (file_.empty()) return;
  const auto known =
      std::find_if(known_.begin(), known_.end(), [&](const Kept& kept) { return kept.key == key; });
  if (known != known_.end() && *known->trace == trace) return;
  if (known != known_.end()) known_.erase(known);
  known_.insert(known_.begin(), {key, std::make_shared<const std::string>(std::move(trace))});
  changed_ = true;
}

void ClosureMemo::save() noexcept try {
  if (!changed_) return;
  changed_ = false;
  const std::string boot = boot_id();
  if (boot.empty()) return;
  std::vector<Kept> all = known_;
  if (const base::Fd fd = open_memo(file_)) {  // traces that other processes saved meanwhile
    for (const IndexRow& row : read_index(fd.get())) {
      const bool ours = std::any_of(all.begin(), all.end(), [&](const Kept& k) { return k.key == row.key; });
      if (ours || all.size() >= kMaxTraces) continue;
      if (auto trace = read_trace(fd.get(), row)) all.push_back({row.key, std::move(trace)});
    }
  }
  base::Writer index;
  std::string traces;
  std::vector<IndexRow> rows;
  for (const Kept& kept : all) {
    if (rows.size() == kMaxTraces || traces.size() + kept.trace->size() > kMaxTraceBytes) break;
    rows.push_back({kept.key, kHead + traces.size(), kept.trace->size(), base::hash64(*kept.trace)});
    traces += *kept.trace;
  }
  index.bytes(boot).list(rows, [](base::Writer& w, const IndexRow& e) {
    w.str().append(reinterpret_cast<const char*>(e.key.bytes.data()), e.key.bytes.size());
    w.number(e.offset).number(e.size).number(e.checksum);
  });
  index.str().resize(kHead - kSums, '\0');
  base::Writer sum;
  sum.number(base::hash64(index.str()));
  base::write_file(file_, std::string(kTracesMagic) + sum.str() + index.str() + traces, 0600);
} catch (...) {
}

}  // namespace kiln::source
