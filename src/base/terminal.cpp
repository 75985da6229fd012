#include "base/terminal.hpp"

#include <unistd.h>

#include <string_view>

#include "base/text.hpp"

namespace kiln::base {

bool understands_escapes(int fd) noexcept {
  const std::string_view term = environment("TERM");
  return ::isatty(fd) && !term.empty() && term != "dumb";
}

bool shows_colours(int fd) noexcept { return understands_escapes(fd) && environment("NO_COLOR").empty(); }

}  // namespace kiln::base
