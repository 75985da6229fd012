#include "compile/pool/machine.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/file.hpp"
#include "base/text.hpp"

namespace kiln::compile {
namespace {

constexpr auto kUnlimited = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kNoLimitV1 = std::uint64_t{1} << 60;  // v1 writes a huge number of whole pages

std::optional<std::uint64_t> number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end != text.data() ? std::optional(value) : std::nullopt;
}

/// The number after `name` at the beginning of a line: "MemAvailable:   123 kB", "oom_kill 3".
std::optional<std::uint64_t> field(std::string_view text, std::string_view name) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.starts_with(name)) return number(line.substr(name.size()));
    at = end + 1;
  }
  return std::nullopt;
}

/// Number of CPUs in our affinity mask; all online CPUs when the mask cannot be read. The kernel needs room
/// for every CPU that it was built for or could have, which may be more than cpu_set_t's 1024.
int cores_of_affinity() {
  constexpr std::size_t kMostSets = 1024;  // a million CPUs
  for (std::size_t sets = 1; sets <= kMostSets; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    const std::size_t bytes = sets * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, bytes, mask.data()) == 0) return CPU_COUNT_S(bytes, mask.data());
    if (errno != EINVAL) break;
  }
  return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

Machine::Machine(const std::string& root)
    : root_(root), cpu_(groups_of("cpu")), memory_(groups_of("memory")) {}

/// Uses v1 where the controller has its own hierarchy, otherwise the unified one.
Machine::Groups Machine::groups_of(const std::string& controller) const {
  std::string v1_path, v2_path;
  bool has_v1 = false, has_v2 = false;
  for (const std::string& line :
       base::split(base::read_proc(root_ + "/proc/self/cgroup"), '\n')) {  // "4:memory:/a"
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (names.empty()) {
      v2_path = path, has_v2 = true;
    } else if (const auto all = base::split(names, ',');
               std::find(all.begin(), all.end(), controller) != all.end()) {
      v1_path = path, has_v1 = true;
    }
  }
  for (const std::string& line : base::split(base::read_proc(root_ + "/proc/self/mountinfo"), '\n')) {
    // id parent dev PART POINT options ... - TYPE source superoptions
    const auto words = base::split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const std::string& type = dash[1];
    const auto options = base::split(dash[3], ',');
    const bool v2 = type == "cgroup2" && has_v2 && !has_v1;
    const bool v1 =
        type == "cgroup" && has_v1 && std::find(options.begin(), options.end(), controller) != options.end();
    if (!v1 && !v2) continue;
    const std::string &part = words[3], &point = words[4];
    std::string path = v2 ? v2_path : v1_path;
    // The mount may already be our own group, in a container without its own cgroup namespace.
    if (part != "/" && path.starts_with(part)) path.erase(0, part.size());
    if (path.find("..") != std::string::npos) path.clear();  // the group lies outside of this namespace
    const std::string top = root_ + point;
    std::string at = top + (path == "/" ? "" : path);
    if (::access(at.c_str(), F_OK) != 0) at = top;
    Groups out{{at}, v2};
    while (at.size() > top.size()) out.directories.push_back(at = at.substr(0, at.rfind('/')));
    return out;
  }
  return {};
}

int Machine::cores() const {
  int cores = cores_of_affinity();
  for (const std::string& directory : cpu_.directories) {
    std::optional<std::uint64_t> quota, period;
    if (cpu_.unified) {
      // "max 100000" or "150000 100000"
      const auto words = base::split(base::read_proc(directory + "/cpu.max"), ' ');
      if (words.size() == 2) quota = number(words[0]), period = number(words[1]);
    } else {
      quota = number(base::read_proc(directory + "/cpu.cfs_quota_us"));  // -1: none
      period = number(base::read_proc(directory + "/cpu.cfs_period_us"));
    }
    if (quota && period && *period > 0) {
      const std::uint64_t whole = *quota / *period + (*quota % *period != 0);
      cores = static_cast<int>(std::min<std::uint64_t>(static_cast<std::uint64_t>(cores), whole));
    }
  }
  return std::max(1, cores);
}

std::uint64_t Machine::available_memory() const {
  const auto free = field(base::read_proc(root_ + "/proc/meminfo"), "MemAvailable:");
  std::uint64_t out = free ? *free * 1024 : kUnlimited;
  for (const std::string& directory : memory_.directories) {
    const auto limit =
        number(base::read_proc(directory + (memory_.unified ? "/memory.max" : "/memory.limit_in_bytes")));
    const auto used =
        number(base::read_proc(directory + (memory_.unified ? "/memory.current" : "/memory.usage_in_bytes")));
    if (!limit || !used || *limit > kNoLimitV1) continue;
    const auto file_pages = field(base::read_proc(directory + "/memory.stat"),
                                  memory_.unified ? "inactive_file " : "total_inactive_file ");
    const std::uint64_t kept = *used - std::min(*used, file_pages.value_or(0));
    out = std::min(out, *limit - std::min(*limit, kept));
  }
  return out;
}

std::uint64_t Machine::total_memory() const {
  const auto all = field(base::read_proc(root_ + "/proc/meminfo"), "MemTotal:");
  std::uint64_t out = all ? *all * 1024 : kUnlimited;
  for (const std::string& directory : memory_.directories) {
    const auto limit =
        number(base::read_proc(directory + (memory_.unified ? "/memory.max" : "/memory.limit_in_bytes")));
    if (limit && *limit <= kNoLimitV1) out = std::min(out, *limit);
  }
  return out;
}

std::uint64_t Machine::memory_kills() const {
  for (const std::string& directory : memory_.directories) {  // our own first
    const auto kills =
        field(base::read_proc(directory + (memory_.unified ? "/memory.events" : "/memory.oom_control")),
              "oom_kill ");
    if (kills) return *kills;
  }
  return field(base::read_proc(root_ + "/proc/vmstat"), "oom_kill ").value_or(0);
}

}  // namespace kiln::compile
