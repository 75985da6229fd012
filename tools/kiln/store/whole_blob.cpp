#include "tools/kiln/store/whole_blob.hpp"

#include "base/wire.hpp"
#include "cache/blob/join.hpp"

namespace kiln::cli {

cache::Peeked<cache::Bytes> whole_blob(const cache::BlobFacts& facts, const cache::Record& head,
                                       const RecordOf& record) try {
  const cache::Peeked<cache::Bytes> damaged{{}, cache::Miss::damaged};
  if (facts.size > cache::kLargestBlob) return damaged;
  cache::JoinedContent joined(facts);
  if (facts.parts == 0) joined.add(cache::piece_of(facts, {{}, head.image}));
  for (std::uint32_t i = 0; joined.fits() && i < facts.parts; ++i) {
    const cache::BlobKey part = cache::blob_part_key(facts, i);
    const auto found = record(part.key);
    if (!found) return {{}, found.miss};
    if (found->key_text != part.text) return damaged;
    joined.add(cache::piece_of(cache::decode_blob(found->facts), {{}, found->image}));
  }
  auto content = joined.whole();
  if (!content) return damaged;
  return {std::move(content), cache::Miss::absent};
} catch (const base::Malformed&) {
  return {{}, cache::Miss::damaged};
}

}  // namespace kiln::cli
