// Checks that a server's value was signed by a key that this node trusts.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "cache/fleet/rejection.hpp"
#include "cache/trust/public_key.hpp"
#include "kiln/digest.hpp"

namespace kiln::fleet {

/// Returns nothing when a key in `keys` with this id made `signature` over `message`. Otherwise returns
/// unsigned_, unknown_key or bad_signature. An id of zeros means "unsigned" and belongs to no key. The answer
/// is also bad_signature when libsodium cannot start. Thread-safe.
std::optional<Rejection> check_signature(std::string_view message, const Bytes<8>& id,
                                         const Bytes<64>& signature,
                                         std::span<const trust::PublicKey> keys) noexcept;

}  // namespace kiln::fleet
