// The cores and the memory that cgroups leave to this process, in trees copied from real machines.
#include "compile/pool/machine.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "support/tree.hpp"

/// When not 0, the kernel may have this number of CPUs, and this process may use the even ones.
static std::size_t g_possible_cpus = 0;

/// Replaces libc's function.
extern "C" int sched_getaffinity(pid_t pid, std::size_t size, cpu_set_t* mask) noexcept {
  std::memset(mask, 0, size);
  if (g_possible_cpus == 0) return ::syscall(SYS_sched_getaffinity, pid, size, mask) < 0 ? -1 : 0;
  if (size * 8 < g_possible_cpus) return errno = EINVAL, -1;
  for (std::size_t cpu = 0; cpu < g_possible_cpus; cpu += 2) CPU_SET_S(cpu, size, mask);
  return 0;
}

namespace kiln::testing {
namespace {

using compile::Machine;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

struct FakeMachine : Tree {
  FakeMachine() {
    write("proc/meminfo", "MemTotal:       67108864 kB\nMemFree:  1 kB\nMemAvailable:   33554432 kB\n");
    write("proc/vmstat", "nr_free_pages 1\noom_kill 3\n");
  }
  void unified(const std::string& ours) {
    write("proc/self/cgroup", "0::" + ours + '\n');
    write("proc/self/mountinfo",
          "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
};

TEST(Machine, WithoutCgroupsIsTheWholeOne) {
  const FakeMachine tree;
  const Machine machine(tree.path());
  EXPECT_EQ(machine.available_memory(), 32 * kGiB);
  EXPECT_EQ(machine.total_memory(), 64 * kGiB);
  EXPECT_GE(machine.cores(), 1);
  EXPECT_EQ(machine.memory_kills(), 3u);
}

TEST(Machine, WithoutAnythingToReadIsUnlimited) {
  const Tree tree;
  EXPECT_GT(Machine(tree.path()).available_memory(), 1024 * kGiB);
}

TEST(Machine, TheTightestUnifiedCgroupAboveUsCounts) {
  FakeMachine tree;
  tree.unified("/pods/pod7/engine");
  const std::string base = "sys/fs/cgroup/pods";
  tree.write(base + "/pod7/engine/memory.max", "max\n");
  tree.write(base + "/pod7/engine/memory.current", "5000000\n");
  tree.write(base + "/pod7/memory.max", std::to_string(4 * kGiB) + '\n');
  tree.write(base + "/pod7/memory.current", std::to_string(3 * kGiB) + '\n');
  tree.write(base + "/pod7/memory.stat",
             "anon 1\ninactive_file " + std::to_string(kGiB) + "\nactive_file 7\n");
  tree.write(base + "/pod7/memory.events", "low 0\noom 2\noom_kill 2\n");
  const Machine machine(tree.path());
  EXPECT_EQ(machine.available_memory(), 2 * kGiB) << "file pages that can be dropped are free";
  EXPECT_EQ(machine.total_memory(), 4 * kGiB);
  EXPECT_EQ(machine.memory_kills(), 2u) << "of the nearest group that counts";
}

TEST(Machine, AKillInANeighboursCgroupIsNoneOfOurs) {
  FakeMachine tree;
  tree.unified("/pods/ours");
  tree.write("sys/fs/cgroup/pods/ours/memory.events", "oom_kill 1\n");
  tree.write("sys/fs/cgroup/pods/memory.events", "oom_kill 8\n");
  const Machine machine(tree.path());
  EXPECT_EQ(machine.memory_kills(), 1u);
  tree.write("sys/fs/cgroup/pods/memory.events", "oom_kill 9\n");
  tree.write("proc/vmstat", "oom_kill 9\n");
  EXPECT_EQ(machine.memory_kills(), 1u);
  tree.write("sys/fs/cgroup/pods/ours/memory.events", "oom_kill 2\n");
  EXPECT_EQ(machine.memory_kills(), 2u);
}

TEST(Machine, CoresAreCountedWhereTheKernelHasMoreThanAFixedMaskHolds) {
  const FakeMachine tree;
  for (const std::size_t cpus : {8u, 1024u, 1026u, 8192u, 100000u}) {
    g_possible_cpus = cpus;
    EXPECT_EQ(Machine(tree.path()).cores(), static_cast<int>(cpus / 2));
  }
  g_possible_cpus = std::size_t{1} << 30;  // more than any mask holds
  EXPECT_EQ(Machine(tree.path()).cores(), ::sysconf(_SC_NPROCESSORS_ONLN)) << "unread, and no limit";
  g_possible_cpus = 0;
}

TEST(Machine, CpuQuotasRoundUpAndAParentsHolds) {
  FakeMachine tree;
  tree.unified("/a/b");
  tree.write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  tree.write("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  EXPECT_EQ(Machine(tree.path()).cores(), 1);
  tree.write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_LE(Machine(tree.path()).cores(), 2);
  const int all = Machine(Tree().path()).cores();
  tree.write("sys/fs/cgroup/a/cpu.max", std::to_string(std::uint64_t{1} << 48) + " 1\n");
  EXPECT_EQ(Machine(tree.path()).cores(), all) << "more cores than an int can count";
}

TEST(Machine, V1HierarchiesAreReadEachByItsOwnPath) {
  FakeMachine tree;
  tree.write("proc/self/cgroup", "4:memory:/job/x\n3:cpu,cpuacct:/job\n0::/elsewhere\n");
  tree.write("proc/self/mountinfo",
             "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
             "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
             "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
  tree.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "100000\n");
  tree.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  tree.write("sys/fs/cgroup/memory/job/x/memory.limit_in_bytes", std::to_string(8 * kGiB) + '\n');
  tree.write("sys/fs/cgroup/memory/job/x/memory.usage_in_bytes", std::to_string(kGiB) + '\n');
  tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  tree.write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(40 * kGiB) + '\n');
  const Machine machine(tree.path());
  EXPECT_EQ(machine.cores(), 1);
  EXPECT_EQ(machine.available_memory(), 7 * kGiB);
}

TEST(Machine, AContainerThatSeesItsOwnPartOfTheTree) {
  FakeMachine tree;
  tree.write("proc/self/cgroup", "4:memory:/docker/abc\n");
  tree.write("proc/self/mountinfo",
             "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(2 * kGiB) + '\n');
  tree.write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(kGiB) + '\n');
  EXPECT_EQ(Machine(tree.path()).available_memory(), kGiB);
}

}  // namespace
}  // namespace kiln::testing
