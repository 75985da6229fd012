#include "cache/record/record.hpp"

#include <cstdint>
#include <limits>

#include "base/hash.hpp"
#include "base/wire.hpp"
#include "kiln/error.hpp"

namespace kiln::cache {
namespace {

constexpr std::string_view kRecordMagic = "kilnrec1";
constexpr std::size_t kSizesEnd = 24;   // magic and the three sizes, which the head checksum covers first
constexpr std::size_t kFixedSize = 40;  // these 24 bytes and both checksums

struct Fixed {
  std::uint32_t facts, key_text;
  std::uint64_t image, head_sum, body_sum;
  std::uint64_t total() const noexcept { return kFixedSize + std::uint64_t{facts} + key_text + image; }
};

std::optional<Fixed> fixed_part(std::string_view bytes) {
  if (bytes.size() < kFixedSize || bytes.substr(0, kRecordMagic.size()) != kRecordMagic) return std::nullopt;
  base::Reader in(bytes.substr(kRecordMagic.size(), kFixedSize - kRecordMagic.size()));
  Fixed out{};
  out.facts = in.number<std::uint32_t>();
  out.key_text = in.number<std::uint32_t>();
  out.image = in.number<std::uint64_t>();
  out.head_sum = in.number<std::uint64_t>();
  out.body_sum = in.number<std::uint64_t>();
  if (out.image > std::uint64_t{1} << 48) return std::nullopt;  // so that no sum of sizes can wrap
  return out;
}

std::uint64_t head_sum(std::string_view sizes, std::string_view facts) {
  std::string head;
  head.reserve(sizes.size() + facts.size());
  head.append(sizes).append(facts);
  return base::hash64(head);
}

}  // namespace

std::string encode(const Record& record) {
  constexpr auto limit = std::numeric_limits<std::uint32_t>::max();
  if (record.facts.size() > limit || record.key_text.size() > limit)
    throw Error(Errc::invalid_argument, "record: facts or key text of 4 GiB or more");
  base::Writer out;
  out.str().reserve(kFixedSize + record.size());
  out.str().append(kRecordMagic);
  out.number(static_cast<std::uint32_t>(record.facts.size()));
  out.number(static_cast<std::uint32_t>(record.key_text.size()));
  out.number(static_cast<std::uint64_t>(record.image.size()));
  out.number(head_sum(out.str(), record.facts));
  const std::size_t body_sum_at = out.str().size();
  out.number(std::uint64_t{0});
  out.str().append(record.facts).append(record.key_text).append(record.image);
  const std::uint64_t body_sum =
      base::hash64(std::string_view(out.str()).substr(kFixedSize + record.facts.size()));
  std::memcpy(out.str().data() + body_sum_at, &body_sum, sizeof body_sum);
  return std::move(out.str());
}

std::optional<RecordExtent> extent_of(std::string_view prefix) {
  const auto fixed = fixed_part(prefix);
  if (!fixed) return std::nullopt;
  const std::uint64_t head = kFixedSize + std::uint64_t{fixed->facts};
  return RecordExtent{head, head + fixed->key_text, fixed->total()};
}

std::optional<RecordHead> decode_head(std::string_view prefix, std::size_t* needed) {
  if (needed) *needed = 0;
  const auto fixed = fixed_part(prefix);
  if (!fixed) return std::nullopt;
  const std::size_t size = kFixedSize + fixed->facts;
  if (needed) *needed = size;
  if (prefix.size() < size) return std::nullopt;
  const std::string_view facts = prefix.substr(kFixedSize, fixed->facts);
  if (head_sum(prefix.substr(0, kSizesEnd), facts) != fixed->head_sum) return std::nullopt;
  return RecordHead{std::string(facts), fixed->key_text, static_cast<std::size_t>(fixed->image)};
}

bool is_intact(std::string_view bytes) {
  const auto fixed = fixed_part(bytes);
  return fixed && bytes.size() == fixed->total() && decode_head(bytes) &&
         base::hash64(bytes.substr(kFixedSize + fixed->facts)) == fixed->body_sum;
}

std::optional<RecordView> view_of(std::string_view bytes) {
  if (!is_intact(bytes)) return std::nullopt;
  const auto extent = extent_of(bytes);
  const auto part = [&](std::uint64_t from, std::uint64_t to) { return bytes.substr(from, to - from); };
  return RecordView{part(kFixedSize, extent->head), part(extent->head, extent->key_text),
                    part(extent->key_text, extent->total)};
}

std::optional<Record> decode(const Key& key, std::string_view bytes) {
  const auto view = view_of(bytes);
  if (!view) return std::nullopt;
  return Record{key, std::string(view->facts), std::string(view->key_text), std::string(view->image)};
}

}  // namespace kiln::cache
