// The bundle's reader. The bytes are a whole file, the content inside the
// compression, or that content with a right end mark.
#include <algorithm>
#include <cstring>

#include "base/wire.hpp"
#include "cache/bundle/reader.hpp"
#include "cache/bundle/writer.hpp"
#include "tests/fuzz/target.hpp"

using namespace kiln;
using namespace kiln::bundle;
using namespace kiln::trust;

namespace {

/// Small limits, so that an input can reach them.
Limits small() {
  Limits out;
  out.facts = 1000, out.key_text = 1000, out.image = 100'000, out.content = 1 << 20;
  return out;
}

base::Read from(std::string_view bytes, std::size_t most) {
  return [bytes, most, at = std::size_t{0}](char* out, std::size_t size) mutable {
    const std::size_t take = std::min({size, most, bytes.size() - at});
    std::memcpy(out, bytes.data() + at, take);
    at += take;
    return take;
  };
}

/// Entries that were read to the end are written again. The result must be read as the same entries.
void expect_round_trip(const std::vector<cache::Record>& entries, const Summary& summary) {
  std::string written;
  Writer writer([&](std::string_view bytes) { written += bytes; });
  for (const cache::Record& entry : entries) writer.add(entry);
  const Summary again = writer.end();
  fuzz::expect(again.digest == summary.digest && again.content_bytes == summary.content_bytes,
               "the same content has one spelling");
  Reader reader(from(written, 4096), small());
  std::size_t count = 0;
  while (reader.next()) ++count;
  fuzz::expect(count == entries.size(), "what is written is read");
}

template <class AnyReader>
void read(AnyReader& reader) {
  std::vector<cache::Record> entries;
  while (auto entry = reader.next()) {
    fuzz::expect(entry->facts.size() <= 1000 && entry->image.size() <= 100'000, "sizes within bounds");
    fuzz::expect(entries.empty() || entries.back().key < entry->key, "ascending keys");
    entries.push_back(std::move(*entry));
  }
  fuzz::expect(reader.summary().content_bytes <= small().content, "the limit of the whole");
  if (reader.summary().content_bytes % 16 == 0)
    expect_round_trip(entries, reader.summary());  // only sometimes, because it takes 3 ms
}

template <class Body>
void refusal_allowed(Body&& body) {
  try {
    body();
  } catch (const Error&) {
  }
}

/// Adds digests and an end to `bytes`, as far as `bytes` are entries. The rest is appended as it is.
std::string with_digests(std::string_view bytes, std::uint64_t count) {
  base::Writer out;
  const auto digest = [&] {
    const auto of_it = blake2b<kContentDigestBytes>(out.str());
    out.str().append(reinterpret_cast<const char*>(of_it.bytes.data()), of_it.bytes.size());
  };
  constexpr std::size_t head = 1 + 32 + 4 + 4 + 8;
  while (bytes.size() >= head) {
    base::Reader sizes(bytes.substr(33, 16));
    const auto facts = sizes.number<std::uint32_t>(), key_text = sizes.number<std::uint32_t>();
    const auto image = sizes.number<std::uint64_t>();
    const std::uint64_t size =
        head + std::uint64_t{facts} + key_text + std::min<std::uint64_t>(image, 1u << 30);
    if (size > bytes.size()) break;
    out.str() += bytes.substr(0, size);
    bytes.remove_prefix(size);
    digest();
  }
  out.str() += bytes;
  out.number(kEndMark).number(count);
  digest();
  return out.str();
}

void read_content(std::string_view bytes) {
  refusal_allowed([&] {
    ContentReader reader(from(bytes, 1 + bytes.size() % 97), small());
    read(reader);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::view(data, size);
  refusal_allowed([&] {
    Reader reader(from(bytes, 1 + size % 97), small());
    read(reader);
  });
  read_content(bytes);
  // Reaches the code after the digests. The input's first byte is the count of entries.
  if (!bytes.empty()) read_content(with_digests(bytes.substr(1), data[0]));
  return 0;
}
