// What a terminal behind a file descriptor can show.
#pragma once

namespace kiln::base {

/// A terminal that understands escape codes: TERM is set, and is not "dumb".
bool understands_escapes(int fd) noexcept;
/// Such a terminal, and the user did not refuse colours: NO_COLOR is unset or empty (https://no-color.org).
bool shows_colours(int fd) noexcept;

}  // namespace kiln::base
