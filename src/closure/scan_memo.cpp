#include "closure/scan_memo.hpp"

#include <cstdint>

#include "base/hash.hpp"
#include "base/wire.hpp"
#include "closure/memo_file.hpp"

namespace kiln::source {
namespace {

// The digit changes whenever scan_includes finds other things in the same bytes.
constexpr std::string_view kScansMagic = "kilnmem5";
constexpr std::size_t kMaxScanBytes = std::size_t{16} << 20;

std::string encode(const ScanCache::Scanned& e) {
  base::Writer out;
  out.number(e.stamp.device).number(e.stamp.inode).number(e.stamp.size).number(e.stamp.mount);
  out.number(e.stamp.modified_ns).number(e.stamp.changed_ns);
  out.bytes({reinterpret_cast<const char*>(e.digest.bytes.data()), e.digest.bytes.size()});
  out.list(e.scan->directives, [](base::Writer& w, const IncludeDirective& d) {
    w.bytes(d.name).number<std::uint8_t>(d.quoted).number<std::uint8_t>(d.next);
  });
  out.list(e.scan->definitions, [](base::Writer& w, const auto& d) { w.bytes(d.first).bytes(d.second); });
  out.list(e.scan->operands, [](base::Writer& w, const std::string& name) { w.bytes(name); });
  out.number<std::uint8_t>(e.scan->computed)
      .number<std::uint8_t>(e.scan->computed_probe)
      .number<std::uint8_t>(e.scan->date_time);
  return std::move(out.str());
}

/// Throws base::Malformed.
ScanCache::Scanned decode(std::string_view blob) {
  base::Reader in(blob);
  ScanCache::Scanned e;
  e.settled = e.memoised = true;
  for (std::uint64_t* field : {&e.stamp.device, &e.stamp.inode, &e.stamp.size, &e.stamp.mount})
    *field = in.number<std::uint64_t>();
  e.stamp.modified_ns = in.number<std::int64_t>();
  e.stamp.changed_ns = in.number<std::int64_t>();
  const std::string_view digest = in.bytes(e.digest.bytes.size());
  if (digest.size() != e.digest.bytes.size()) throw base::Malformed("digest");
  std::memcpy(e.digest.bytes.data(), digest.data(), digest.size());
  auto scan = std::make_shared<ScanResult>();
  in.list([&](base::Reader& r) {
    IncludeDirective d;
    d.name = r.string();
    d.quoted = r.number<std::uint8_t>() != 0;
    d.next = r.number<std::uint8_t>() != 0;
    if (d.name.empty()) throw base::Malformed("empty name");
    scan->directives.push_back(std::move(d));
  });
  in.list([&](base::Reader& r) {
    std::string name = r.string();
    scan->definitions.emplace_back(std::move(name), r.string());
  });
  in.list([&](base::Reader& r) { scan->operands.push_back(r.string()); });
  scan->computed = in.number<std::uint8_t>() != 0;
  scan->computed_probe = in.number<std::uint8_t>() != 0;
  scan->date_time = in.number<std::uint8_t>() != 0;
  e.scan = std::move(scan);
  return e;
}

}  // namespace

void ScanMemo::load() {
  loaded_ = true;
  if (file_.empty() || !open_memo(file_)) return;
  auto content = base::read_file(file_, kMaxScanBytes);
  if (!content) return;
  bytes_ = std::move(content->bytes);
  try {
    base::Reader in(bytes_);
    if (in.take(kScansMagic.size()) != kScansMagic) return;
    const auto checksum = in.number<std::uint64_t>();
    if (base::hash64(std::string_view(bytes_).substr(bytes_.size() - in.left())) != checksum) return;
    const std::string boot = boot_id();
    if (boot.empty() || in.bytes() != boot) return;
    in.list([&](base::Reader& r) {
      const std::string_view path = r.bytes();
      stored_.insert_or_assign(path, r.bytes());
    });
  } catch (const base::Malformed&) {
    stored_.clear();
  }
}

std::optional<ScanCache::Scanned> ScanMemo::find(const std::string& path) try {
  if (!loaded_) load();
  if (const auto found = added_.find(path); found != added_.end()) return found->second;
  const auto found = stored_.find(path);
  return found == stored_.end() ? std::nullopt : std::optional(decode(found->second));
} catch (const base::Malformed&) {
  return std::nullopt;
}

void ScanMemo::add(const std::string& path, const ScanCache::Scanned& scanned) {
  if (file_.empty()) return;
  const auto known = find(path);
  if (known && known->stamp == scanned.stamp && known->digest == scanned.digest) return;
  added_.insert_or_assign(path, scanned);
  changed_ = true;
}

void ScanMemo::save() noexcept try {
  if (!changed_) return;
  changed_ = false;
  const std::string boot = boot_id();
  if (boot.empty()) return;
  base::Writer body;
  body.bytes(boot);
  std::unordered_map<std::string_view, std::string> blobs;
  for (const auto& [path, blob] : stored_) blobs.emplace(path, blob);
  for (const auto& [path, scanned] : added_) blobs.insert_or_assign(path, encode(scanned));
  body.list(blobs,
            [](base::Writer& w, const auto& scanned) { w.bytes(scanned.first).bytes(scanned.second); });
  if (body.str().size() > kMaxScanBytes / 2) return;
  base::Writer out;
  out.number(base::hash64(body.str()));
  base::write_file(file_, std::string(kScansMagic) + out.str() + body.str(), 0600);
} catch (...) {
}

}  // namespace kiln::source
