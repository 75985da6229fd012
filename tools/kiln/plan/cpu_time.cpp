#include "tools/kiln/plan/cpu_time.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace kiln::cli {
namespace {

struct Process {
  long parent = 0;
  double ticks = 0;  ///< its own ticks, and the ticks of its children that have ended
};

std::optional<Process> read_process(const std::string& directory) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen((directory + "/stat").c_str(), "re"),
                                                             &std::fclose);
  if (!file) return std::nullopt;
  std::string text(1024, '\0');  // a process that has ended meanwhile gives a short read
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  const auto name_end = text.rfind(')');  // a name may contain anything
  if (name_end == std::string::npos) return std::nullopt;
  char state = 0;
  long parent = 0;
  unsigned long user = 0, system = 0;
  long children_user = 0, children_system = 0;
  // proc(5): state ppid pgrp session tty_nr tpgid flags minflt cminflt majflt cmajflt utime stime cutime
  // cstime
  if (std::sscanf(text.c_str() + name_end + 1, " %c %ld %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld",
                  &state, &parent, &user, &system, &children_user, &children_system) != 6)
    return std::nullopt;
  return Process{parent, static_cast<double>(user) + static_cast<double>(system) +
                             static_cast<double>(children_user) + static_cast<double>(children_system)};
}

double ms_of(const timeval& t) {
  return static_cast<double>(t.tv_sec) * 1000 + static_cast<double>(t.tv_usec) / 1000;
}

}  // namespace

std::optional<double> cpu_time_ms() {
  double ms = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    if (::getrusage(who, &usage) != 0) return std::nullopt;
    ms += ms_of(usage.ru_utime) + ms_of(usage.ru_stime);
  }
  std::multimap<long, std::pair<long, double>> children;  // parent -> pid, ticks
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.empty() || !std::isdigit(static_cast<unsigned char>(name[0]))) continue;
    if (const auto process = read_process(it->path().string()))
      children.emplace(process->parent, std::pair{std::atol(name.c_str()), process->ticks});
  }
  if (error || children.empty()) return std::nullopt;
  double ticks = 0;
  for (std::vector<long> left{::getpid()}; !left.empty();) {
    const auto [begin, end] = children.equal_range(left.back());
    left.pop_back();
    for (auto it = begin; it != end; ++it) {
      ticks += it->second.second;
      left.push_back(it->second.first);
    }
  }
  return ms + ticks * 1000 / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace kiln::cli
