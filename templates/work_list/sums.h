// Sums that a crew of the device's writer of work lists adds up (cutter.cuh says what a crew does).
#pragma once

#include "numbers.h"

namespace kiln::work_list {

/// True for a sum that is made of words of 32 bits alone. A crew adds such words without a call of the sum's own addition.
template <class Sum>
inline constexpr bool sums_of_words = false;

/// A sum over requests. Two numbers below 2^16 share a word.
struct TwoWords {
  unsigned a, b;
  KILN_BOTH TwoWords operator+(const TwoWords& o) const { return {a + o.a, b + o.b}; }
};
template <>
inline constexpr bool sums_of_words<TwoWords> = true;

/// How often each of three flags is set. The first two counts are below 2^16, and share a word.
struct FlagCounts {
  unsigned first_and_second, third;
  KILN_BOTH FlagCounts operator+(const FlagCounts& o) const {
    return {first_and_second + o.first_and_second, third + o.third};
  }
  KILN_BOTH int first() const { return static_cast<int>(first_and_second & 0xffff); }
  KILN_BOTH int second() const { return static_cast<int>(first_and_second >> 16); }
};
template <>
inline constexpr bool sums_of_words<FlagCounts> = true;

}  // namespace kiln::work_list
