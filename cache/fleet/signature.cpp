#include "cache/fleet/signature.hpp"

#include "cache/trust/ed25519.hpp"
#include "cache/trust/sodium.hpp"
#include "kiln/error.hpp"

namespace kiln::fleet {

std::optional<Rejection> check_signature(std::string_view message, const Bytes<8>& id,
                                         const Bytes<64>& signature,
                                         std::span<const trust::PublicKey> keys) noexcept {
  if (id == Bytes<8>{}) return Rejection::unsigned_;
  try {
    trust::need_sodium();
  } catch (const Error&) {
    return Rejection::bad_signature;
  }
  bool known = false;
  for (const trust::PublicKey& key : keys) {
    if (!(key.id == id)) continue;  // ids are no secret, and two keys may have the same id
    known = true;
    if (trust::ed25519::is_signed_by(signature, message, key.key)) return std::nullopt;
  }
  return known ? Rejection::bad_signature : Rejection::unknown_key;
}

}  // namespace kiln::fleet
