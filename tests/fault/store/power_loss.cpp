#include "tests/fault/store/power_loss.hpp"

#include <algorithm>
#include <cstring>

#include "base/file.hpp"
#include "kiln/error.hpp"

namespace kiln::cache::test {

using fault::Kind;

std::vector<Operation> read_log(const std::string& path) {
  const auto log = base::read_file(path);
  if (!log) throw Error(Errc::io, "no log at " + path);
  std::vector<Operation> out;
  for (std::size_t at = 0; at < log->bytes.size();) {
    Operation& operation = out.emplace_back();
    if (log->bytes.size() - at < sizeof operation.head) throw Error(Errc::io, "a torn log at " + path);
    std::memcpy(&operation.head, log->bytes.data() + at, sizeof operation.head);
    at += sizeof operation.head;
    if (log->bytes.size() - at < operation.head.payload) throw Error(Errc::io, "a torn log at " + path);
    operation.payload = log->bytes.substr(at, operation.head.payload);
    at += operation.head.payload;
  }
  return out;
}

void Disk::issue(const Operation& operation) {
  const fault::Entry& head = operation.head;
  switch (head.kind) {
    case Kind::write: {
      File& file = files_[head.inode];
      const std::uint64_t end = head.offset + operation.payload.size();
      if (file.cached.size() < end) file.cached.resize(end);
      std::memcpy(file.cached.data() + head.offset, operation.payload.data(), operation.payload.size());
      for (std::uint64_t sector = head.offset / kSector; sector * kSector < end; ++sector) {
        Undecided& undecided = file.sectors[sector];
        undecided.versions.push_back(file.cached.substr(sector * kSector, kSector));
        undecided.dirty = true;
      }
      return;
    }
    case Kind::truncate: {
      File& file = files_[head.inode];
      file.cached.resize(head.offset);
      file.sectors.erase(file.sectors.lower_bound((head.offset + kSector - 1) / kSector), file.sectors.end());
      return;
    }
    case Kind::make_directory:
    case Kind::create:
    case Kind::unlink:
    case Kind::rename:
    case Kind::link: {
      const char* path = operation.payload.c_str();
      const bool two = head.kind == Kind::rename || head.kind == Kind::link;
      names_.push_back({head.kind, path, two ? path + std::strlen(path) + 1 : "", head.inode});
      return;
    }
    case Kind::sync:
    case Kind::sync_failed:
    case Kind::mark:
      return;
  }
}

void Disk::settle(File& file, std::uint64_t sector) {
  const std::string now = file.cached.substr(sector * kSector, kSector);
  const std::uint64_t end = sector * kSector + now.size();
  if (file.durable.size() < end) file.durable.resize(end);
  std::memcpy(file.durable.data() + sector * kSector, now.data(), now.size());
}

void Disk::complete(const Operation& operation) {
  const fault::Entry& head = operation.head;
  if (head.kind == Kind::write && head.flag != fault::kPlain) {
    File& file = files_[head.inode];
    const std::uint64_t end = head.offset + operation.payload.size();
    for (std::uint64_t sector = head.offset / kSector; sector * kSector < end; ++sector) {
      if (head.flag == fault::kSyncedAndFailed) {
        file.sectors[sector].dirty = false;
      } else if (syncs_ == Syncs::honoured) {
        settle(file, sector);
        file.sectors.erase(sector);
      }
    }
  }
  if (head.kind == Kind::sync_failed)
    for (auto& [sector, undecided] : files_[head.inode].sectors) undecided.dirty = false;
  if (head.kind != Kind::sync || syncs_ == Syncs::ignored) return;
  if (head.flag != 0) {
    durable_names_ = names_.size();
    return;
  }
  File& file = files_[head.inode];
  file.durable.resize(file.cached.size());
  for (auto at = file.sectors.begin(); at != file.sectors.end();) {
    if (at->second.dirty) {
      settle(file, at->first);
      at = file.sectors.erase(at);
    } else {
      ++at;
    }
  }
}

std::size_t Disk::undecided() const {
  std::size_t out = names_.size() - durable_names_;
  for (const auto& [inode, file] : files_) out += file.sectors.size();
  return out;
}

std::string Disk::content(const File& file, std::mt19937& random) {
  std::string out = file.durable;
  // The chance that a sector arrived, in percent: sometimes none, sometimes all, mostly a mixture.
  constexpr unsigned kChances[] = {0, 5, 30, 50, 70, 95, 100};
  const unsigned chance = kChances[random() % std::size(kChances)];
  const bool newest_only = random() % 2 == 0;
  for (const auto& [sector, undecided] : file.sectors) {
    if (random() % 100 >= chance) continue;
    const auto& versions = undecided.versions;
    const std::string& version = newest_only ? versions.back() : versions[random() % versions.size()];
    const std::uint64_t end = sector * kSector + version.size();
    if (out.size() < end) out.resize(end);
    std::memcpy(out.data() + sector * kSector, version.data(), version.size());
  }
  if (out.size() < file.cached.size() && random() % 2 == 0) out.resize(file.cached.size());
  return out;
}

Files Disk::after_power_loss(std::mt19937& random) const {
  const std::size_t names = durable_names_ + random() % (names_.size() - durable_names_ + 1);
  std::map<std::string, std::uint64_t> inodes;
  for (std::size_t i = 0; i < names; ++i) {
    const Name& name = names_[i];
    if (name.kind == Kind::create) inodes[name.path] = name.inode;
    if (name.kind == Kind::unlink) inodes.erase(name.path);
    if (name.kind == Kind::link || name.kind == Kind::rename) inodes[name.to] = inodes[name.path];
    if (name.kind == Kind::rename) inodes.erase(name.path);
  }
  std::map<std::uint64_t, std::string> contents;  // two names of one file must have the same content
  Files out;
  for (const auto& [path, inode] : inodes) {
    const auto file = files_.find(inode);
    if (!contents.contains(inode))
      contents[inode] = file == files_.end() ? std::string() : content(file->second, random);
    out[path] = contents[inode];
  }
  return out;
}

}  // namespace kiln::cache::test
