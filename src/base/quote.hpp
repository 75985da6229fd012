// Text from outside, made safe to show in a message.
#pragma once

#include <string>
#include <string_view>

namespace kiln::base {

/// In single quotes, control characters escaped, cut after `limit` bytes.
std::string quote(std::string_view text, std::size_t limit = 120);

}  // namespace kiln::base
