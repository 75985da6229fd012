// The two callbacks through which bytes are streamed: one that gives bytes and one that takes them.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace kiln::base {

/// Fills at most `size` bytes and returns how many; 0 only at the end. Throws Error.
using Read = std::function<std::size_t(char* out, std::size_t size)>;
/// Takes all bytes of the view. Throws Error.
using Write = std::function<void(std::string_view)>;

}  // namespace kiln::base
