// The names under which the fleet's values lie in a server of the Redis protocol, version 1.
//
//     kiln:1:{SPEC}:e:TOOL   an entry: one envelope (cache/fleet/envelope.hpp)
//     kiln:1:{SPEC}:t        hash TOOL -> signed row of that toolchain (cache/fleet/toolchain_row.hpp)
//     kiln:1:{SPEC}:l:TOOL   a lease: the token of its holder (cache/fleet/lease.hpp)
//     kiln:1:missing         stream: plan rows that read-only nodes missed; not verified, and bounded
//
//
// SPEC and TOOL are 32 hex digits each. The braces are a hash tag: all values of one specialisation are in
// one slot of a Redis Cluster, and on one of several servers. The stream's name is its own tag, so the whole
// stream lies on one server; each process reports a row once. The ACL in docs/fleet/users.acl knows these
// patterns. Another version of these names or of the envelope's schema takes another number, so that neither
// sees the other's values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kiln/digest.hpp"

namespace kiln::fleet {

inline constexpr std::string_view kKeyPrefix = "kiln:1:", kMissingKey = "kiln:1:missing";

/// The tag, which decides the server.
inline std::string tag_of(const Digest& specialisation) { return specialisation.hex(); }

inline std::string rows_key(const Digest& specialisation) {
  return std::string(kKeyPrefix) + '{' + specialisation.hex() + "}:t";
}
inline std::string entry_key(const Key& key) {
  return std::string(kKeyPrefix) + '{' + key.specialisation.hex() + "}:e:" + key.toolchain.hex();
}
inline std::string lease_key(const Key& key) {
  return std::string(kKeyPrefix) + '{' + key.specialisation.hex() + "}:l:" + key.toolchain.hex();
}

/// The name of a value of this version, in its parts. The toolchain of a row's name is zeros.
struct ValueName {
  char kind;  ///< e, t, l
  Key key;
};
/// Returns nothing for any other name.
inline std::optional<ValueName> parse_name(std::string_view name) {
  constexpr std::size_t kHex = 32;
  if (!name.starts_with(kKeyPrefix)) return std::nullopt;
  name.remove_prefix(kKeyPrefix.size());
  if (name.size() < kHex + 4 || name[0] != '{' || name.substr(kHex + 1, 2) != "}:") return std::nullopt;
  const auto specialisation = Digest::from_hex(name.substr(1, kHex));
  const std::string_view rest = name.substr(kHex + 3);
  if (!specialisation) return std::nullopt;
  if (rest == "t") return ValueName{'t', {*specialisation, {}}};
  if (rest.size() != 2 + kHex || (rest[0] != 'e' && rest[0] != 'l') || rest[1] != ':') return std::nullopt;
  const auto toolchain = Digest::from_hex(rest.substr(2));
  return toolchain ? std::optional(ValueName{rest[0], {*specialisation, *toolchain}}) : std::nullopt;
}

}  // namespace kiln::fleet
