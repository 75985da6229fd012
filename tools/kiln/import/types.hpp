// Converts C++ types, as text, to the types of a manifest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kiln/dtype.hpp"
#include "tools/kiln/import/brackets.hpp"
#include "tools/kiln/import/source.hpp"

namespace kiln::cli {

/// A type whose aliases of the same source are resolved and whose "std::" is removed.
struct PlainType {
  Tokens words;      ///< without the value's own const
  int pointers = 0;  ///< number of stars, references and arrays
  bool points_to_const = false;
  std::string text() const { return joined(words); }
  /// The type when it is a single name: "T", "Params"; else empty.
  std::string word() const { return words.size() == 1 && words[0].is_word() ? words[0].text : std::string(); }
};
PlainType plain_type(const Tokens& type, const CudaSource& source);

/// "float", "std::int32_t", "unsigned long long", "__half"
std::optional<Dtype> dtype_of(const PlainType& type);
/// "float4": its element type and its number of elements.
struct VectorElement {
  Dtype dtype;
  int count;
};
std::optional<VectorElement> vector_element(const PlainType& type);
/// The manifest's type of a value argument: "i32", "f64", "tensormap" ...; empty when manifests have no name
/// for it.
std::string value_type(const PlainType& type);
bool is_integer(const PlainType& type);
bool is_boolean(const PlainType& type);

/// The dtype's name in CUDA: "__nv_bfloat16".
std::string_view cuda_name(Dtype dtype);

}  // namespace kiln::cli
