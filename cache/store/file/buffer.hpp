// A buffer of bytes that grows without zeroing new bytes first, since records are read straight into it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>

namespace kiln::cache {

class Buffer {
 public:
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  std::string_view view() const noexcept { return {bytes_.get(), size_}; }
  void clear() noexcept { size_ = 0; }
  /// REQUIRES: no more than size().
  void truncate(std::size_t size) noexcept { size_ = size; }
  void reserve(std::size_t bytes) {
    if (bytes <= capacity_) return;
    std::unique_ptr<char[]> larger(new char[bytes]);  // not make_unique, which zeroes
    if (size_ > 0) std::memcpy(larger.get(), bytes_.get(), size_);
    bytes_ = std::move(larger);
    capacity_ = bytes;
  }
  /// Makes the buffer `bytes` longer. Returns where the new bytes begin; they are not initialised.
  char* grow(std::size_t bytes) {
    if (size_ + bytes > capacity_) reserve(std::max(size_ + bytes, 2 * capacity_));
    size_ += bytes;
    return bytes_.get() + size_ - bytes;
  }
  void append(std::string_view bytes) {
    if (!bytes.empty()) std::memcpy(grow(bytes.size()), bytes.data(), bytes.size());
  }

 private:
  std::unique_ptr<char[]> bytes_;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace kiln::cache
