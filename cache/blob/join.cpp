#include "cache/blob/join.hpp"

#include "base/hash.hpp"

namespace kiln::cache {

void JoinedContent::add(const std::optional<Bytes>& piece) {
  fits_ = fits_ && piece && content_.size() + piece->view.size() <= facts_.size;
  if (fits_) content_ += piece->view;
}

std::optional<Bytes> JoinedContent::whole() {
  if (!fits_ || content_.size() != facts_.size || base::digest_of(content_) != facts_.content)
    return std::nullopt;
  return bytes_of(std::move(content_));
}

void PartCount::add(const BlobFacts& facts) {
  if (facts.part != 0) ++parts_[blob_part_key(facts, 0).key];
}

bool PartCount::has_all(const BlobFacts& head) const {
  if (head.parts == 0) return true;
  const auto found = parts_.find(blob_part_key(head, 0).key);
  return found != parts_.end() && found->second == head.parts;
}

}  // namespace kiln::cache
