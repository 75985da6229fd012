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

}  // namespace kiln::cache
