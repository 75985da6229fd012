#include "cache/blob/blob.hpp"

#include <algorithm>
#include <cstring>

#include "base/hash.hpp"
#include "base/quote.hpp"
#include "base/wire.hpp"
#include "cache/compression/zstd.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

constexpr std::string_view kFirstLine = "kiln-key 6:blob/1\n", kAnyVersion = "kiln-key 6:blob/";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kSmallestCompressed = 512, kSample = std::size_t{64} << 10;

void put_line(std::string& out, std::string_view label, std::string_view value) {
  out += label;
  out += ' ';
  out += std::to_string(value.size());
  out += ':';
  out += value;
  out += '\n';
}

std::string text_of(const BlobName& name) {
  std::string out(kFirstLine);
  put_line(out, "space", name.space);
  put_line(out, "compatibility", name.compatibility);
  put_line(out, "key", name.key);
  return out;
}

std::string part_text_of(const BlobFacts& facts, std::uint32_t part) {
  std::string out = text_of(facts) + "part";
  for (const std::string& value :
       {std::to_string(part), std::to_string(facts.part_bytes), facts.content.hex()})
    out += ' ' + std::to_string(value.size()) + ':' + value;
  out += '\n';
  return out;
}

/// Writes a number in big-endian order, as digests are.
void put_hash(std::uint8_t* out, std::uint64_t hash) noexcept {
  for (int i = 0; i < 8; ++i) out[i] = static_cast<std::uint8_t>(hash >> (56 - 8 * i));
}

Key key_with(std::string_view space, std::string_view key, std::string_view text) {
  Key out;
  put_hash(out.specialisation.bytes.data(), base::hash64(space));
  put_hash(out.specialisation.bytes.data() + 8, base::hash64(key));
  out.toolchain = base::digest_of(text);
  return out;
}

std::string encode(const BlobFacts& facts) {
  base::Writer out;
  out.number(kBlobMark).number(kVersion);
  out.bytes(facts.space).bytes(facts.compatibility).bytes(facts.key);
  out.number(static_cast<std::uint8_t>(facts.compressed)).number(facts.size).number(facts.piece);
  out.str().append(reinterpret_cast<const char*>(facts.content.bytes.data()), facts.content.bytes.size());
  out.number(facts.parts).number(facts.part).number(facts.part_bytes);
  return std::move(out.str());
}

/// Compresses a piece where that pays. A sample tells quickly that it does not.
std::string packed(std::string_view piece, bool& compressed) {
  const auto pays = [](std::string_view from, const std::string& to) {
    return to.size() <= from.size() / 10 * 9;
  };
  compressed = false;
  if (piece.size() < kSmallestCompressed) return std::string(piece);
  if (piece.size() > 4 * kSample) {
    const std::string_view sample = piece.substr(piece.size() / 2, kSample);
    const std::string_view first = piece.substr(0, kSample);
    if (!pays(sample, compression::compress_frame(sample)) &&
        !pays(first, compression::compress_frame(first)))
      return std::string(piece);
  }
  std::string out = compression::compress_frame(piece);
  compressed = pays(piece, out);
  return compressed ? out : std::string(piece);
}

}  // namespace

void check_blob_name(const BlobName& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  };
  if (name.space.empty() || name.space.size() > 64 ||
      !std::all_of(name.space.begin(), name.space.end(), allowed))
    throw Error(Errc::invalid_argument, "space " + base::quote(name.space) +
                                            " of blobs must have 1 to 64 characters of a-z 0-9 _ - .");
  const auto check = [&](std::string_view what, const std::string& text) {
    if (text.size() > kLongestBlobText)
      throw Error(Errc::invalid_argument, "the " + std::string(what) + " of a blob of space " + name.space +
                                              " has " + std::to_string(text.size()) + " bytes; at most " +
                                              std::to_string(kLongestBlobText));
  };
  check("key", name.key);
  check("compatibility", name.compatibility);
}

BlobKey blob_key(const BlobName& name) {
  BlobKey out{{}, text_of(name)};
  out.key = key_with(name.space, name.key, out.text);
  return out;
}

BlobKey blob_part_key(const BlobFacts& facts, std::uint32_t part) {
  BlobKey out{{}, part_text_of(facts, part)};
  out.key = key_with(facts.space, facts.key, out.text);
  return out;
}

BlobKey key_of(const BlobFacts& facts) {
  return facts.part ? blob_part_key(facts, facts.part - 1) : blob_key(facts);
}

KeyRange keys_of_space(std::string_view space) {
  KeyRange out;
  for (Key* key : {&out.first, &out.last}) put_hash(key->specialisation.bytes.data(), base::hash64(space));
  std::fill(out.last.specialisation.bytes.begin() + 8, out.last.specialisation.bytes.end(), 0xff);
  out.last.toolchain.bytes.fill(0xff);
  return out;
}

KeyRange keys_of_blob(const Key& key) {
  KeyRange out{{key.specialisation, {}}, {key.specialisation, {}}};
  out.last.toolchain.bytes.fill(0xff);
  return out;
}

void each_record(const BlobName& name, std::string_view content, std::uint64_t part_bytes,
                 const std::function<void(Record&&)>& each) {
  check_blob_name(name);
  if (content.size() > kLargestBlob)
    throw Error(Errc::invalid_argument, "a blob of space " + name.space + " has " +
                                            std::to_string(content.size()) + " bytes; at most " +
                                            std::to_string(kLargestBlob));
  BlobFacts facts;
  static_cast<BlobName&>(facts) = name;
  facts.size = content.size();
  facts.content = base::digest_of(content);
  const auto give = [&](BlobKey made, std::string_view piece) {
    facts.piece = piece.size();
    Record record{made.key, {}, std::move(made.text), packed(piece, facts.compressed)};
    record.facts = encode(facts);
    each(std::move(record));
  };
  if (content.size() <= part_bytes) return give(blob_key(name), content);
  facts.part_bytes = part_bytes;
  const auto parts = static_cast<std::uint32_t>((content.size() + part_bytes - 1) / part_bytes);
  for (std::uint32_t i = 0; i < parts; ++i) {
    facts.part = i + 1;
    give(blob_part_key(facts, i), content.substr(i * part_bytes, part_bytes));
  }
  facts.part = 0, facts.parts = parts;
  give(blob_key(name), {});
}

Bytes bytes_of(std::string&& content) {
  const auto owner = std::make_shared<const std::string>(std::move(content));
  return {owner, *owner};
}

std::optional<Bytes> piece_of(const BlobFacts& facts, const Bytes& image) {
  if (facts.piece > kBlobPart) return std::nullopt;
  if (facts.compressed) {
    auto content = compression::decompress_frame(image.view, static_cast<std::size_t>(facts.piece));
    return content ? std::optional(bytes_of(std::move(*content))) : std::nullopt;
  }
  if (image.view.size() != facts.piece) return std::nullopt;
  return image;
}

bool is_blob(std::string_view facts) noexcept {
  std::uint32_t mark = 0;
  if (facts.size() < sizeof mark) return false;
  std::memcpy(&mark, facts.data(), sizeof mark);
  return mark == kBlobMark;
}

bool is_blob_text(std::string_view key_text) noexcept { return key_text.starts_with(kAnyVersion); }

bool is_blob_of_this_version(std::string_view key_text) noexcept { return key_text.starts_with(kFirstLine); }

BlobFacts decode_blob(std::string_view bytes) {
  base::Reader in(bytes);
  if (in.number<std::uint32_t>() != kBlobMark || in.number<std::uint32_t>() != kVersion)
    throw base::Malformed("no blob, or one of another version");
  BlobFacts out;
  out.space = in.string();
  out.compatibility = in.string();
  out.key = in.string();
  out.compressed = in.number<std::uint8_t>() != 0;
  out.size = in.number<std::uint64_t>();
  out.piece = in.number<std::uint64_t>();
  const std::string_view digest = in.take(out.content.bytes.size());
  std::memcpy(out.content.bytes.data(), digest.data(), digest.size());
  out.parts = in.number<std::uint32_t>();
  out.part = in.number<std::uint32_t>();
  out.part_bytes = in.number<std::uint64_t>();
  if (!in.empty()) throw base::Malformed("facts of a blob with bytes after their end");
  return out;
}

}  // namespace kiln::cache
