// Computes states of a disk after a power loss, from the recorded order of writes and syncs.
//
// The model works sector by sector (512 bytes). A sector is written whole or not at all.
// - A write reaches the page cache. Until a sync of its file returns, each sector may be on the disk or not.
//   Its content is the newest or any earlier unsynced one. Sectors are independent of each other.
// - A write through O_DSYNC is on the disk once it has returned.
// - After a failed sync, the kernel regards the sectors as clean: a later sync does not write them.
// - The file's length grows with the sectors that arrived, or to its full length with zeros in between.
// - Names (mkdir, create, link, rename, unlink) arrive in order, as in a journalled filesystem. Names
//   before a sync of a directory are on the disk.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "record.hpp"

namespace kiln::cache::test {

struct Operation {
  fault::Entry head;
  std::string payload;
};

/// Throws Error(io) when `path` is not a log of the interposer.
std::vector<Operation> read_log(const std::string& path);

/// Path -> content.
using Files = std::map<std::string, std::string>;

class Disk {
 public:
  enum class Syncs { honoured, ignored };
  explicit Disk(Syncs syncs = Syncs::honoured) : syncs_(syncs) {}

  /// The call has begun: its effect is in the page cache.
  void issue(const Operation& operation);
  /// The call has returned.
  void complete(const Operation& operation);
  /// Number of sectors and names that may or may not be on the disk.
  std::size_t undecided() const;
  /// One of the states that a power loss may leave now.
  Files after_power_loss(std::mt19937& random) const;

 private:
  static constexpr std::uint64_t kSector = 512;
  struct Undecided {
    std::vector<std::string> versions;  // the disk has one of them, or the durable content
    bool dirty = true;                  // the next sync writes it
  };
  struct File {
    std::string durable, cached;
    std::map<std::uint64_t, Undecided> sectors;
  };
  struct Name {
    fault::Kind kind;
    std::string path, to;
    std::uint64_t inode;
  };
  void settle(File& file, std::uint64_t sector);
  static std::string content(const File& file, std::mt19937& random);

  Syncs syncs_;
  std::map<std::uint64_t, File> files_;  // by inode
  std::vector<Name> names_;
  std::size_t durable_names_ = 0;
};

}  // namespace kiln::cache::test
