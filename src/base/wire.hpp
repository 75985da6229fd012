// Bounded little-endian encoding: the grammar under records, facts and the worker protocol.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace kiln::base {

/// Thrown by Reader when the bytes end early or a length is out of bounds. A reader of
/// files treats it as damage.
struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Writer {
 public:
  template <class T>
  Writer& number(T value) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T> || std::is_floating_point_v<T>);
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);  // x86-64 and arm64 are little-endian
    out_.append(raw, sizeof value);
    return *this;
  }
  /// A length of 32 bits, then the bytes.
  Writer& bytes(std::string_view value) {
    if (value.size() > 0xffffffffu) throw Malformed("field of more than 4 GiB");
    number(static_cast<std::uint32_t>(value.size()));
    out_.append(value);
    return *this;
  }
  template <class Range, class Each>
  Writer& list(const Range& items, Each&& each) {
    number(static_cast<std::uint32_t>(items.size()));
    for (const auto& item : items) each(*this, item);
    return *this;
  }
  std::string& str() noexcept { return out_; }

 private:
  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::string_view in) noexcept : in_(in) {}

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view bytes(std::size_t limit = 0xffffffffu) {
    const auto size = number<std::uint32_t>();
    if (size > limit) throw Malformed("length out of bounds");
    return take(size);
  }
  std::string string(std::size_t limit = 0xffffffffu) { return std::string(bytes(limit)); }
  /// Calls `each` once for each item. Throws Malformed when the count exceeds the number of bytes left.
  template <class Each>
  void list(Each&& each) {
    const auto count = number<std::uint32_t>();
    if (count > in_.size()) throw Malformed("count out of bounds");
    for (std::uint32_t i = 0; i < count; ++i) each(*this);
  }
  std::string_view take(std::size_t size) {
    if (size > in_.size()) throw Malformed("ends early");
    const auto out = in_.substr(0, size);
    in_.remove_prefix(size);
    return out;
  }
  bool empty() const noexcept { return in_.empty(); }
  std::size_t left() const noexcept { return in_.size(); }

 private:
  std::string_view in_;
};

}  // namespace kiln::base
