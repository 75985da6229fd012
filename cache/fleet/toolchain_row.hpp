// A toolchain row says that a toolchain has compiled a specialisation. Each row is signed by itself, so that
// two writers never overwrite each other's.
//
// Row, schema 1, little-endian, at most 1 KiB:
//
//     8   magic "kilnrow1"
//     u32 schema: 1
//     32  key: specialisation digest, toolchain digest (the hash's name and the field's)
//     i64 when it was compiled: unix time, for the order of two rows alone
//     u64 bytes of its envelope
//     u8  bit 0: it serves other toolchains' hosts too; the other bits are 0
//     u8  NVRTC version size, then "13.0"
//     u8  toolchain name size, then the name (for people)
//     8   id of the key that signed it; zeros: unsigned
//     64  Ed25519 signature of everything before it
//
// History: schema 1, the first.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cache/fleet/rejection.hpp"
#include "cache/trust/signing_key.hpp"
#include "kiln/digest.hpp"

namespace kiln::fleet {

inline constexpr std::size_t kMostRow = 1024, kMostRows = 256;

struct ToolchainRow {
  Key key;
  std::int64_t created_s = 0;
  std::uint64_t envelope_bytes = 0;
  /// False when project files were reached only through this toolchain's toolkit.
  bool serves_others = false;
  std::string compiler_version, toolchain;
};

/// Returns the row's bytes, or an empty string when a text is longer than 255 bytes. Without a `signer` the
/// row is unsigned, which no node takes.
std::string seal_row(const ToolchainRow& row, const trust::SigningKey* signer);

/// Opens the value under the hash's field for `asked`. It is verified in the order of an envelope.
std::variant<ToolchainRow, Rejection> open_row(std::string_view bytes, const Key& asked,
                                               std::span<const trust::PublicKey> trusted);

/// Opens a whole hash, field by field, as HGETALL gives it. Returns the rows that verify: newest NVRTC first,
/// then youngest, then by key. Each row that does not verify is counted. Rows beyond kMostRows are not looked
/// at, and together count as one too_long.
std::vector<ToolchainRow> open_rows(std::span<const std::pair<std::string, std::string>> fields,
                                    const Digest& specialisation, std::span<const trust::PublicKey> trusted,
                                    RejectionCounts& rejected);

}  // namespace kiln::fleet
