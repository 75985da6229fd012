// What an envelope holds, compressed by zstd as one frame.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace kiln::remote {

/// Throws bad_alloc; Error(internal) when libzstd refuses.
std::string compress(std::string_view bytes);

/// One frame that says that it holds `size` bytes and does, and nothing behind it; else nothing, and nothing
/// was allocated for a frame that says otherwise. Throws bad_alloc.
std::optional<std::string> decompress(std::string_view frame, std::size_t size);

}  // namespace kiln::remote
