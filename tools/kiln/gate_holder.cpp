#include "gate_holder.hpp"

#include <dirent.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <vector>

#include "cache/gate.hpp"

namespace kiln::cli {
namespace {

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> out;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(directory.c_str()), ::closedir);
  while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr)
    if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9') out.emplace_back(entry->d_name);
  return out;
}

/// A line of fdinfo: "lock:  1: OFDLCK ADVISORY WRITE -1 fe:00:INODE FIRST LAST".
bool is_writers_lock(const std::string& line, const std::string& inode) {
  constexpr auto kWriters = cache::kGateOffset + 2;
  return line.starts_with("lock:") && line.find(" WRITE ") != std::string::npos &&
         line.find(':' + inode + ' ' + std::to_string(kWriters) + ' ') != std::string::npos;
}

bool holds(const std::string& process, const std::string& inode) {
  for (const std::string& fd : names_in(process + "/fdinfo")) {
    std::ifstream info(process + "/fdinfo/" + fd);
    for (std::string line; std::getline(info, line);)
      if (is_writers_lock(line, inode)) return true;
  }
  return false;
}

}  // namespace

std::string writers_at_gate(const std::string& file) {
  struct stat st {};
  if (::stat(file.c_str(), &st) != 0) return {};
  std::string out;
  for (const std::string& pid : names_in("/proc")) {
    const std::string process = "/proc/" + pid;
    if (!holds(process, std::to_string(st.st_ino))) continue;
    std::string name;
    std::ifstream(process + "/comm") >> name;
    out += (out.empty() ? "pid " : ", pid ") + pid + " (" + name + ')';
  }
  return out;
}

}  // namespace kiln::cli
