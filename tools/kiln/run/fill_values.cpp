#include "tools/kiln/run/fill_values.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

template <class T>
std::string packed(std::span<const std::int64_t> values, Dtype dtype, const std::string& what) {
  using Limits = std::numeric_limits<T>;
  std::string out(values.size() * sizeof(T), '\0');
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::cmp_less(values[i], Limits::min()) || std::cmp_greater(values[i], Limits::max())) {
      throw Error(Errc::invalid_value,
                  what + ": " + std::to_string(values[i]) + " does not fit " + std::string(to_string(dtype)));
    }
    const T value = static_cast<T>(values[i]);
    std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
  }
  return out;
}

}  // namespace

std::uint64_t Draws::next() {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::uint64_t Draws::below(std::uint64_t n) {
  const std::uint64_t uneven = (0 - n) % n;  // this many of the 2^64 values would make low results likelier
  for (;;) {
    if (const std::uint64_t drawn = next(); drawn >= uneven) return drawn % n;
  }
}

std::vector<std::int64_t> random_permutation(std::uint64_t n, std::uint64_t seed) {
  std::vector<std::int64_t> out(n);
  std::iota(out.begin(), out.end(), 0);
  Draws draws(seed);
  for (std::uint64_t i = n; i > 1; --i) std::swap(out[i - 1], out[draws.below(i)]);
  return out;
}

std::vector<std::int64_t> random_offsets(std::uint64_t entries, std::int64_t total, std::uint64_t seed) {
  std::vector<std::int64_t> out(entries);
  if (entries < 2) return out;
  Draws draws(seed);
  for (std::uint64_t i = 1; i + 1 < entries; ++i)
    out[i] = static_cast<std::int64_t>(draws.below(static_cast<std::uint64_t>(total) + 1));
  out.back() = total;
  std::sort(out.begin(), out.end());
  // Adds empty runs, which kernels often get wrong. With a large total, random offsets would hardly give one.
  if (entries >= 5) {
    const std::uint64_t empty = 1 + draws.below(entries - 2);
    for (std::uint64_t i = 1; i + 1 < entries; ++i) {
      if (i == empty || draws.below(16) == 0) out[i] = out[i - 1];
    }
  }
  return out;
}

std::vector<std::int64_t> random_integers(std::uint64_t n, std::int64_t low, std::int64_t high,
                                          std::uint64_t seed) {
  const std::uint64_t span = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
  Draws draws(seed);
  std::vector<std::int64_t> out(n);
  for (std::int64_t& value : out) {
    const std::uint64_t drawn = span == 0 ? draws.next() : draws.below(span);  // 0 stands for 2^64
    value = static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + drawn);
  }
  return out;
}

bool holds_indices(Dtype dtype) noexcept {
  return dtype == Dtype::i32 || dtype == Dtype::u32 || dtype == Dtype::i64 || dtype == Dtype::u64;
}

std::string elements_of(std::span<const std::int64_t> values, Dtype dtype, const std::string& what) {
  switch (dtype) {
    case Dtype::i32:
      return packed<std::int32_t>(values, dtype, what);
    case Dtype::u32:
      return packed<std::uint32_t>(values, dtype, what);
    case Dtype::i64:
      return packed<std::int64_t>(values, dtype, what);
    case Dtype::u64:
      return packed<std::uint64_t>(values, dtype, what);
    default:
      throw Error(Errc::invalid_value, what + " needs elements of type i32, u32, i64 or u64, and they are " +
                                           std::string(to_string(dtype)));
  }
}

}  // namespace kiln::cli
