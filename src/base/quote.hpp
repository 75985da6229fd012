// Text from outside, made safe to show in a message.
#pragma once

#include <string>
#include <string_view>

namespace kiln::base {

/// `text` in single quotes, with control characters escaped; "..." follows when it has
/// more than `limit` bytes.
std::string quote(std::string_view text, std::size_t limit = 120);

}  // namespace kiln::base
