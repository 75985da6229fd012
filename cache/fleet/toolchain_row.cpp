#include "cache/fleet/toolchain_row.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <tuple>

#include "base/bytes.hpp"
#include "base/wire.hpp"
#include "cache/fleet/signature.hpp"

namespace kiln::fleet {
namespace {

using base::bytes_of;
using base::view;

constexpr std::string_view kRowMagic = "kilnrow1";
constexpr std::uint32_t kSchema = 1;
constexpr std::uint8_t kServesOthers = 1;

struct ParsedRow {
  std::uint32_t schema = 0;
  ToolchainRow row;
  Bytes<8> signed_by;
  Bytes<64> signature;
  std::string_view covered;
};

std::optional<ParsedRow> parse_row(std::string_view bytes) try {
  base::Reader in(bytes);
  ParsedRow out;
  if (in.take(kRowMagic.size()) != kRowMagic) return std::nullopt;
  out.schema = in.number<std::uint32_t>();
  if (out.schema != kSchema) return out;
  out.row.key.specialisation = bytes_of<16>(in.take(16));
  out.row.key.toolchain = bytes_of<16>(in.take(16));
  out.row.created_s = in.number<std::int64_t>();
  out.row.envelope_bytes = in.number<std::uint64_t>();
  const auto flags = in.number<std::uint8_t>();
  if ((flags & ~kServesOthers) != 0) return std::nullopt;
  out.row.serves_others = flags != 0;
  out.row.compiler_version = in.take(in.number<std::uint8_t>());
  out.row.toolchain = in.take(in.number<std::uint8_t>());
  out.signed_by = bytes_of<8>(in.take(8));
  out.covered = bytes.substr(0, bytes.size() - in.left());
  out.signature = bytes_of<64>(in.take(64));
  if (!in.empty()) return std::nullopt;
  return out;
} catch (const base::Malformed&) {
  return std::nullopt;
}

/// Reads "13.0" as {13, 0}. A text that is no version counts as the oldest.
std::pair<int, int> version_of(std::string_view text) noexcept {
  std::pair<int, int> out{};
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, out.first);
  if (error != std::errc()) return {};
  if (at != end && *at == '.') std::from_chars(at + 1, end, out.second);
  return out;
}

}  // namespace

std::string seal_row(const ToolchainRow& row, const trust::SigningKey* signer) {
  if (row.compiler_version.size() > 255 || row.toolchain.size() > 255) return {};
  base::Writer out;
  out.str().append(kRowMagic);
  out.number(kSchema);
  out.str().append(view(row.key.specialisation)).append(view(row.key.toolchain));
  out.number(row.created_s).number(row.envelope_bytes);
  out.number(row.serves_others ? kServesOthers : std::uint8_t{0});
  for (const std::string* text : {&row.compiler_version, &row.toolchain}) {
    out.number(static_cast<std::uint8_t>(text->size()));
    out.str().append(*text);
  }
  out.str().append(view(signer ? signer->public_key().id : Bytes<8>{}));
  out.str().append(view(signer ? signer->sign(out.str()) : Bytes<64>{}));
  return std::move(out.str());
}

std::variant<ToolchainRow, Rejection> open_row(std::string_view bytes, const Key& asked,
                                               std::span<const trust::PublicKey> trusted) {
  if (bytes.size() > kMostRow) return Rejection::too_long;
  auto parsed = parse_row(bytes);
  if (!parsed) return Rejection::malformed;
  if (parsed->schema != kSchema) return Rejection::other_schema;
  if (parsed->row.key != asked) return Rejection::other_key;
  if (const auto reason = check_signature(parsed->covered, parsed->signed_by, parsed->signature, trusted))
    return *reason;
  return std::move(parsed->row);
}

std::vector<ToolchainRow> open_rows(std::span<const std::pair<std::string, std::string>> fields,
                                    const Digest& specialisation, std::span<const trust::PublicKey> trusted,
                                    RejectionCounts& rejected) {
  if (fields.size() > kMostRows) {
    rejected.add(Rejection::too_long);
    fields = fields.first(kMostRows);
  }
  std::vector<ToolchainRow> out;
  for (const auto& [field, value] : fields) {
    const auto toolchain = Digest::from_hex(field);
    if (!toolchain) {
      rejected.add(Rejection::malformed);
      continue;
    }
    auto row = open_row(value, {specialisation, *toolchain}, trusted);
    if (const auto* reason = std::get_if<Rejection>(&row))
      rejected.add(*reason);
    else
      out.push_back(std::move(std::get<ToolchainRow>(row)));
  }
  std::sort(out.begin(), out.end(), [](const ToolchainRow& a, const ToolchainRow& b) {
    const auto va = version_of(a.compiler_version), vb = version_of(b.compiler_version);
    return std::tie(vb, b.created_s, a.key.toolchain) < std::tie(va, a.created_s, b.key.toolchain);
  });
  return out;
}

}  // namespace kiln::fleet
