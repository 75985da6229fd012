// The activity of one store as an observer sees it: which processes compile, wait and hold locks.
// Looking opens nothing for writing and takes no lock. Each fact is read at its own moment, so
// two facts may disagree.
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
    bool held = false;  ///< the key's lock is held; else its holder was killed
    std::string file;   ///< the lock file
  };
  std::vector<Compile> compiling;    ///< the longest compile first
  std::vector<Waiter> waiting;       ///< the longest wait first
  std::vector<BoardEntry> finished;  ///< the latest end first
  /// A held flight lock without an entry on the board.
  struct Unnamed {
    std::string file;
    std::int64_t offset = 0;
  };
  std::vector<Unnamed> unnamed;
  std::vector<int> slots;           ///< compile slots in use, by number; see cache/flight/compile_slots.hpp
  bool caller_waits = false;        ///< for a slot; work ahead of need stands back meanwhile
  std::string data_file;            ///< empty when there is none, or when it cannot be inspected
  bool writing = false;             ///< some process holds W of the data file's gate
  std::vector<std::string> files;   ///< lock files that were inspected
  std::vector<std::string> unseen;  ///< "FILE: why", for files that could not be inspected or say nothing
};

/// `place` is DIR/v1. A place without files has no activity. Throws only for lack of memory.
Activity look_at(const std::string& place, const std::string& shared_memory = "/dev/shm");

/// Returns the board's entry for the flight of `key` that some process of this host has under way now.
std::optional<BoardEntry> flight_under_way(const std::string& place, const Key& key) noexcept;

/// Returns whether some process holds W of this file's gate; false when the file cannot be opened.
bool look_at_gate(const std::string& data_file) noexcept;

}  // namespace kiln::cache
