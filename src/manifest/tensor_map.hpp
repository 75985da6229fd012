// [[tensormap]]: a TMA descriptor (CUtensorMap) of an array, which each launch makes for the kernel.
// The grammar is docs/reference/manifest.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "expression/expression.hpp"

namespace kiln::source {

inline constexpr std::uint32_t kTensorMapBytes = 128;
inline constexpr int kMaxTensorMaps = 16;
inline constexpr std::size_t kMaxTensorMapRank = 5;

struct TensorMapSpec {
  /// The change that the hardware makes to elements of f32: denormal numbers become zero, or the number is rounded
  /// to TF32, or both.
  enum class Float32 { as_it_is, flushed, tf32, tf32_flushed };

  std::string name, doc;
  int of = -1;         ///< the argument that points to the array
  Expression element;  ///< the ordinal of a Dtype
  Float32 float32 = Float32::as_it_is;
  /// In elements, the innermost dimension first: the array's size, and the size of the box that one copy moves.
  std::vector<Expression> dims, box;
  /// Distances of neighbours in the dimensions after the innermost one, in elements or in bytes.
  std::vector<Expression> strides;
  bool strides_in_bytes = false;
  std::vector<Expression> element_strides;  ///< as `box`; empty: 1 in each dimension
  Expression swizzle, l2, interleave;       ///< in bytes; 0: none
  bool fill_nan = false;                    ///< elements outside of the array read as NaN, and else as 0
  /// The struct argument that holds the map, and the map's place in it in bytes. -1: the map is an argument itself.
  int in = -1;
  Expression offset;
};

/// An argument of the kernel: one of the call's, a tensor map, or a constant.
struct PassedArgument {
  enum class From { call, tensor_map, constant };
  From from = From::call;
  std::size_t index = 0;  ///< in Manifest::arguments, Manifest::tensor_maps or Manifest::constants
};

}  // namespace kiln::source
