// The record parser: the bytes as they are, and with right checksums, so that the code after them is reached.
#include "cache/record/record.hpp"

#include <cstring>

#include "base/hash.hpp"
#include "tests/fuzz/target.hpp"

using namespace kiln;

namespace {

void with_checksums(std::string& bytes) {
  constexpr std::size_t kSizes = 24, kFixed = 40;
  if (bytes.size() < kFixed) return;
  std::memcpy(bytes.data(), "kilnrec1", 8);
  std::uint32_t facts;
  std::memcpy(&facts, bytes.data() + 8, sizeof facts);
  facts %= static_cast<std::uint32_t>(bytes.size() - kFixed + 1);
  std::memcpy(bytes.data() + 8, &facts, sizeof facts);
  const std::uint64_t head = base::hash64(bytes.substr(0, kSizes) + bytes.substr(kFixed, facts));
  const std::uint64_t body = base::hash64(std::string_view(bytes).substr(kFixed + facts));
  std::memcpy(bytes.data() + 24, &head, sizeof head);
  std::memcpy(bytes.data() + 32, &body, sizeof body);
}

void parse(std::string_view bytes) {
  std::size_t needed = 0;
  const auto extent = cache::extent_of(bytes);
  const auto head = cache::decode_head(bytes, &needed);
  const auto record = cache::decode({}, bytes);
  fuzz::expect(!head || extent, "a head has an extent");
  fuzz::expect(!head || needed == extent->head, "both know how long the head is");
  fuzz::expect(!record || (head && head->facts == record->facts), "a record has its head");
  if (!record) return;
  fuzz::expect(extent->total == bytes.size(), "a record is as long as it says");
  fuzz::expect(cache::encode(*record) == bytes, "a record encodes to what it was read from");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(fuzz::view(data, size));
  parse(bytes);
  with_checksums(bytes);
  parse(bytes);
  if (bytes.size() > 40) {  // also with sizes that fit
    std::uint32_t facts = 0;
    std::memcpy(&facts, bytes.data() + 8, sizeof facts);
    const auto rest = static_cast<std::uint32_t>(bytes.size() - 40 - facts);
    const std::uint32_t text = rest / 2;
    const std::uint64_t image = rest - text;
    std::memcpy(bytes.data() + 12, &text, sizeof text);
    std::memcpy(bytes.data() + 16, &image, sizeof image);
    with_checksums(bytes);
    parse(bytes);
    fuzz::expect(cache::decode({}, bytes).has_value(), "an intact record is read");
  }
  return 0;
}
