// What a disk may hold after a power loss, from the recorded order of writes and syncs.
//
// The model, sector by sector (512 bytes, written whole or not at all):
//   - a write reaches the page cache; until a sync of its file returns, each of its sectors may or may not be
//   on the
//     disk, in its newest or in any earlier unsynced content, whatever became of the others;
//   - a write through O_DSYNC is on the disk once it has returned;
//   - after a sync that failed, the kernel takes the sectors for clean: a later sync does not write them;
//   - the file's length grows with the sectors that arrived, or to its full length with zeros in between;
//   - names (mkdir, create, link, rename, unlink) arrive in their order, as in a journalled filesystem, those
//   before a
//     sync of a directory certainly.
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

/// Throws Error(io) when `path` is no log of the interposer's.
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
  /// How many sectors and names are in the balance.
  std::size_t undecided() const;
  /// One of the states that a power loss may leave now.
  Files after_power_loss(std::mt19937& random) const;

 private:
  static constexpr std::uint64_t kSector = 512;
  struct Undecided {
    std::vector<std::string> versions;  // any of them, or what is durable
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
