#include "base/terminal.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace kiln::base {
namespace {

std::string_view environment(const char* name) noexcept {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

bool understands_escapes(int fd) noexcept {
  const std::string_view term = environment("TERM");
  return ::isatty(fd) && !term.empty() && term != "dumb";
}

bool shows_colours(int fd) noexcept { return understands_escapes(fd) && environment("NO_COLOR").empty(); }

}  // namespace kiln::base
