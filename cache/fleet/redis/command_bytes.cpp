#include "cache/fleet/redis/command_bytes.hpp"

#include <hiredis/hiredis.h>

#include <cstdlib>
#include <memory>
#include <new>

namespace kiln::fleet {

bool append_command(std::string& out, const std::vector<std::string>& words) {
  if (words.empty()) return false;
  std::vector<const char*> pointers;
  std::vector<std::size_t> sizes;
  std::size_t all = 0;
  for (const std::string& word : words) {
    if (word.size() > kLargestCommand - all) return false;
    all += word.size();
    pointers.push_back(word.data());
    sizes.push_back(word.size());
  }
  if (words.size() > kLargestCommand / 16) return false;  // hiredis counts in int
  char* formatted = nullptr;
  const int size =
      ::redisFormatCommandArgv(&formatted, static_cast<int>(words.size()), pointers.data(), sizes.data());
  if (size < 0) throw std::bad_alloc();
  const std::unique_ptr<char, decltype(&std::free)> owner(formatted, &std::free);
  out.append(formatted, static_cast<std::size_t>(size));
  return true;
}

}  // namespace kiln::fleet
