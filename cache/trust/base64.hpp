// Base64 as minisign writes it, in the usual alphabet with padding.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kiln::trust {

std::string to_base64(std::string_view bytes);
/// Decodes exactly `size` bytes. Returns nothing unless `text` spells them canonically.
std::optional<std::string> from_base64(std::string_view text, std::size_t size);

}  // namespace kiln::trust
