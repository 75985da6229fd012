// The activity of one store as an observer sees it: which processes compile, wait and hold locks. Looking
// opens nothing for writing and takes no lock. Each fact is read at its own moment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache/flight/waiters.hpp"

namespace kiln::cache {

struct Activity {
  struct Compile {
    BoardEntry entry;
    bool held = false;  ///< its key's lock is held; else its holder was killed
    std::string file;   ///< of the lock
  };
  std::vector<Compile> compiling;    ///< the longest first
  std::vector<Waiter> waiting;       ///< the longest first
  std::vector<BoardEntry> finished;  ///< the last first
  /// A flight lock that is held by one who says nothing on the board.
  struct Unnamed {
    std::string file;
    std::int64_t offset = 0;
  };
  std::vector<Unnamed> unnamed;
  std::vector<int> slots;           ///< compile slots in use, by number; see cache/flight/compile_slots.hpp
  bool caller_waits = false;        ///< for a slot: work ahead of need stands back
  std::string data_file;            ///< empty: there is none, or it cannot be looked at
  bool writing = false;             ///< somebody holds its gate of writers
  std::vector<std::string> files;   ///< that were looked at
  std::vector<std::string> unseen;  ///< "FILE: why": not looked at, or silent
};

/// `place` is DIR/v1. A place without files has no activity. Throws for lack of memory only.
Activity look_at(const std::string& place, const std::string& shared_memory = "/dev/shm");

/// The flight of `key` that some process of this host is on now.
std::optional<BoardEntry> flight_under_way(const std::string& place, const Key& key) noexcept;

/// Whether somebody holds the gate of writers of this file.
bool look_at_gate(const std::string& data_file) noexcept;

}  // namespace kiln::cache
