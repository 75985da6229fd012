// The abilities of the terminal at a file descriptor.
#pragma once

namespace kiln::base {

/// True for a terminal that understands escape codes: TERM is set, and is not "dumb".
bool understands_escapes(int fd) noexcept;
/// True for such a terminal when the user did not refuse colours: NO_COLOR is unset or empty
/// (https://no-color.org).
bool shows_colours(int fd) noexcept;

}  // namespace kiln::base
