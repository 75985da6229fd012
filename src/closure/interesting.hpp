// Finds the few places of a source text that an include scan must look at. Portable vector
// code, 16 bytes at a time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace kiln::source {

/// Calls `visit(position)`, in ascending order, for every position where one of these
/// begins, and for some others:
///   '#'   "%:" "%\" "%?" "??"  (digraph, trigraph and spliced forms of '#', trigraph splices)
///   '\' before a line end (splices)   "clu" in any case ("include")   "__D" "__T" (__DATE__, __TIME__)
template <class Visit>
void for_each_interesting(std::string_view text, Visit&& visit) {
  using Vector = unsigned char __attribute__((vector_size(16)));
  constexpr std::size_t kStep = sizeof(Vector), kAhead = 2;
  static_assert(std::endian::native == std::endian::little);

  const auto hits_at = [](const char* at) {
    Vector a, b, c;
    std::memcpy(&a, at, kStep);
    std::memcpy(&b, at + 1, kStep);
    std::memcpy(&c, at + 2, kStep);
    const auto hash = a == '#';
    const auto odd_hash = ((a == '%') | (a == '?')) & ((b == ':') | (b == '?') | (b == '\\'));
    const auto splice = (a == '\\') & (b <= '\r');
    const auto include = ((a | 0x20) == 'c') & ((b | 0x20) == 'l') & ((c | 0x20) == 'u');
    const auto date_time = (a == '_') & (b == '_') & ((c | 0x10) == 'T');
    return hash | odd_hash | splice | include | date_time;
  };
  const auto report = [&](auto hits, std::size_t base, std::size_t end) {
    std::uint64_t lanes[2];
    std::memcpy(lanes, &hits, sizeof lanes);
    for (std::size_t half = 0; half < 2; ++half) {
      for (std::uint64_t bits = lanes[half] & 0x0101010101010101u; bits; bits &= bits - 1) {
        const std::size_t position = base + half * 8 + static_cast<std::size_t>(std::countr_zero(bits)) / 8;
        if (position < end) visit(position);
      }
    }
  };

  std::size_t at = 0;
  for (; at + 2 * kStep + kAhead <= text.size(); at += 2 * kStep) {
    const auto first = hits_at(text.data() + at), second = hits_at(text.data() + at + kStep);
    const auto any = first | second;
    std::uint64_t lanes[2];
    std::memcpy(lanes, &any, sizeof lanes);
    if ((lanes[0] | lanes[1]) == 0) continue;
    report(first, at, text.size());
    report(second, at + kStep, text.size());
  }
  for (; at < text.size(); at += kStep) {
    char padded[kStep + kAhead] = {};
    std::memcpy(padded, text.data() + at, std::min(sizeof padded, text.size() - at));
    report(hits_at(padded), at, text.size());
  }
}

}  // namespace kiln::source
