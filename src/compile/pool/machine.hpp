// The part of this machine that we may use. Cores are limited by affinity and CPU quota; memory by what is
// free and by the limit of every cgroup above us (v1 and v2).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::compile {

/// Thread-safe. A file that cannot be read sets no limit.
class Machine {
 public:
  /// Finds our cgroups once, in about 0.1 ms. `root` is put before every path that is read, so that tests
  /// can use another tree.
  explicit Machine(const std::string& root = {});

  /// Cores of the affinity mask (cpusets) within the cgroup quota, at least 1. A quota of
  /// 1.5 cores counts as 2.
  int cores() const;
  /// Bytes that could be used now without swapping or reaching a limit. This is the least of MemAvailable
  /// and, for each cgroup above us, its limit minus its use. File pages that can be dropped count as free.
  std::uint64_t available_memory() const;
  /// Bytes that could be used at best: the least of MemTotal and the cgroups' limits.
  std::uint64_t total_memory() const;
  /// Number of processes that the kernel has killed because memory ran out. Our own cgroup counts kills for
  /// any limit above it, too. Where it has no count, the nearest cgroup above us or the whole machine is
  /// read. A kill in a neighbour's cgroup is not counted by our own. The number only grows.
  std::uint64_t memory_kills() const;

 private:
  /// The directories of a controller that limit us, from our own cgroup up to the mount: a parent's
  /// limit holds for us, too.
  struct Groups {
    std::vector<std::string> directories;
    bool unified = false;  ///< v2
  };
  Groups groups_of(const std::string& controller) const;

  const std::string root_;
  const Groups cpu_, memory_;
};

}  // namespace kiln::compile
