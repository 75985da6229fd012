#include "cache/bundle/reader.hpp"

#include <algorithm>
#include <cstring>

#include "base/wire.hpp"

namespace kiln::bundle {
namespace {

/// Memory is taken in steps of this many bytes, since an entry may state a size that it does not have.
constexpr std::size_t kStep = std::size_t{1} << 20;

/// Reads and checks the header. The frame follows in the returned reader.
base::Read behind_header(base::Read in) {
  char header[kHeaderBytes];
  std::size_t size = 0;
  while (size < sizeof header) {
    const std::size_t got = in(header + size, sizeof header - size);
    if (got == 0) break;
    size += got;
  }
  const std::string_view bytes(header, size);
  if (bytes.substr(0, kMagic.size()) != kMagic) throw Refused("it is no kiln bundle");
  if (size < sizeof header) throw Refused("it ends in the middle of its header");
  base::Reader fields(bytes.substr(kMagic.size()));
  if (const auto version = fields.number<std::uint32_t>(); version != kVersion)
    throw Error(Errc::io, "it is a bundle of version " + std::to_string(version) + ", and this kiln knows " +
                              std::to_string(kVersion) + "; use the kiln that wrote it, or a later one");
  if (fields.number<std::uint32_t>() != 0) throw Refused("its header is damaged");
  return in;
}

}  // namespace

void ContentReader::take(char* out, std::size_t size) {
  if (size > limits_.content - std::min(limits_.content, summary_.content_bytes))
    throw Error(Errc::io, "it has more than " + std::to_string(limits_.content) +
                              " bytes when decompressed; --max-bytes allows more");
  for (std::size_t done = 0; done < size;) {
    const std::size_t got = in_(out + done, size - done);
    if (got == 0) throw Refused("it ends in the middle of an entry, or without an end mark");
    done += got;
  }
  summary_.content_bytes += size;
}

template <class T>
T ContentReader::number() {
  char raw[sizeof(T)];
  take(raw, sizeof raw);
  hash_.add({raw, sizeof raw});
  T value;
  std::memcpy(&value, raw, sizeof value);
  return value;
}

std::string ContentReader::take_string(std::uint64_t size, std::uint64_t limit, const char* what) {
  if (size > limit)
    throw Refused("an entry states " + std::to_string(size) + " bytes of " + what + "; at most " +
                  std::to_string(limit) + " are allowed");
  std::string out;
  while (out.size() < size) {
    const std::size_t before = out.size();
    out.resize(std::min<std::uint64_t>(size, before + kStep));
    take(out.data() + before, out.size() - before);
  }
  hash_.add(out);
  return out;
}

std::optional<cache::Record> ContentReader::next() {
  if (ended_) return std::nullopt;
  const auto mark = number<std::uint8_t>();
  if (mark == kEndMark) {
    read_end();
    return std::nullopt;
  }
  if (mark != kEntryMark) throw Refused("neither an entry nor the end mark stands where one of them must be");
  cache::Record record;
  for (Digest* half : {&record.key.specialisation, &record.key.toolchain})
    half->bytes = number<decltype(half->bytes)>();
  if (last_ && !(*last_ < record.key))
    throw Refused("entry " + record.key.hex() + " is repeated or out of order");
  last_ = record.key;
  const auto facts = number<std::uint32_t>(), key_text = number<std::uint32_t>();
  const auto image = number<std::uint64_t>();
  record.facts = take_string(facts, limits_.facts, "facts");
  record.key_text = take_string(key_text, limits_.key_text, "key text");
  record.image = take_string(image, limits_.image, "image");
  take_digest("entry " + record.key.hex());
  ++summary_.entries;
  return record;
}

ContentDigest ContentReader::take_digest(const std::string& of) {
  const auto digest = hash_.digest<kContentDigestBytes>();
  if (!(number<decltype(digest.bytes)>() == digest.bytes))
    throw Refused(of + " does not match the digest that the bundle states for it");
  return digest;
}

void ContentReader::read_end() {
  const auto count = number<std::uint64_t>();
  summary_.digest = take_digest("its content");
  if (count != summary_.entries)
    throw Refused("it says that it has " + std::to_string(count) + " entries, and has " +
                  std::to_string(summary_.entries));
  char more;
  if (in_(&more, 1) != 0) throw Refused("something follows its end mark");
  ended_ = true;
}

Reader::Reader(base::Read in, const Limits& limits)
    : decompressor_(behind_header(std::move(in))),
      content_([this](char* out, std::size_t size) { return decompressed(out, size); }, limits) {}

std::size_t Reader::decompressed(char* out, std::size_t size) try {
  return decompressor_.read(out, size);
} catch (const compression::BadFrame& error) {
  throw Refused(error.what());
}

}  // namespace kiln::bundle
