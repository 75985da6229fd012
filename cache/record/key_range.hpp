// A range of keys: stores keep their records in the order of keys.
#pragma once

#include "kiln/digest.hpp"

namespace kiln::cache {

inline constexpr Key kLastKey = [] {
  Key key;
  for (auto& byte : key.specialisation.bytes) byte = 0xff;
  for (auto& byte : key.toolchain.bytes) byte = 0xff;
  return key;
}();
/// The keys from `first` to `last`, both included.
struct KeyRange {
  Key first, last;
};
inline constexpr KeyRange kAllKeys{{}, kLastKey};

}  // namespace kiln::cache
