#include "tools/kiln/store/gate_holder.hpp"

#include <dirent.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <set>

#include "cache/lock/gate.hpp"

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
bool is_lock_at(const std::string& line, const std::string& inode, std::int64_t first) {
  return line.starts_with("lock:") && line.find(" WRITE ") != std::string::npos &&
         line.find(':' + inode + ' ' + std::to_string(first) + ' ') != std::string::npos;
}

/// The offsets of `offsets` whose locks the process holds.
std::set<std::int64_t> held_by(const std::string& process, const std::string& inode,
                               const std::vector<std::int64_t>& offsets) {
  std::set<std::int64_t> out;
  for (const std::string& fd : names_in(process + "/fdinfo")) {
    std::ifstream info(process + "/fdinfo/" + fd);
    for (std::string line; std::getline(info, line);)
      for (const std::int64_t offset : offsets)
        if (is_lock_at(line, inode, offset)) out.insert(offset);
  }
  return out;
}

}  // namespace

std::map<std::int64_t, std::string> lock_holders(const std::string& file,
                                                 const std::vector<std::int64_t>& offsets) {
  std::map<std::int64_t, std::string> out;
  struct stat st {};
  if (offsets.empty() || ::stat(file.c_str(), &st) != 0) return out;
  for (const std::string& pid : names_in("/proc")) {
    const std::string process = "/proc/" + pid;
    const std::set<std::int64_t> held = held_by(process, std::to_string(st.st_ino), offsets);
    if (held.empty()) continue;
    std::string name;
    std::ifstream(process + "/comm") >> name;
    for (const std::int64_t offset : held) {
      std::string& text = out[offset];
      text += (text.empty() ? "pid " : ", pid ") + pid + " (" + name + ')';
    }
  }
  return out;
}

std::string writers_at_gate(const std::string& file) {
  constexpr auto kWriters = cache::kGateOffset + 2;
  const auto holders = lock_holders(file, {kWriters});
  return holders.empty() ? std::string() : holders.begin()->second;
}

}  // namespace kiln::cli
