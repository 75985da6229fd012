// What this machine lets us use: cores by affinity and cpu quota, memory by what is free and by every cgroup
// limit above us (v1 and v2).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::compile {

/// Thread-safe. What cannot be read limits nothing.
class Machine {
 public:
  /// Finds our cgroups, once (about 0.1 ms). `root` stands before every path that is read: another tree for
  /// tests.
  explicit Machine(const std::string& root = {});

  /// At least 1: of the affinity mask (cpusets), and a cgroup quota of 1.5 cores counts as 2.
  int cores() const;
  /// Bytes that could be used now without swapping or reaching a limit: the least of MemAvailable and, for
  /// each cgroup above us, its limit less what it uses (file pages that can be dropped count as free).
  std::uint64_t available_memory() const;
  /// All there could ever be: the least of MemTotal and the cgroups' limits.
  std::uint64_t total_memory() const;
  /// How many processes the kernel has killed for want of memory: in our own cgroup, which counts a kill for
  /// any limit above it too, else in the nearest one above us that counts, else on the whole machine. A kill
  /// in a neighbour's cgroup is none of ours. Grows only.
  std::uint64_t memory_kills() const;

 private:
  /// A controller's directories that hold us, from our own up to the mount: a parent's limit holds for us,
  /// too.
  struct Groups {
    std::vector<std::string> directories;
    bool unified = false;  ///< v2
  };
  Groups groups_of(const std::string& controller) const;

  const std::string root_;
  const Groups cpu_, memory_;
};

}  // namespace kiln::compile
