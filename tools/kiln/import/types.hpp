// From C++ types, as text, to the types of a manifest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kiln/dtype.hpp"
#include "tools/kiln/import/brackets.hpp"
#include "tools/kiln/import/source.hpp"

namespace kiln::cli {

/// What the text of a type says once aliases of the same source are followed and "std::" is taken away.
struct PlainType {
  Tokens words;      ///< without const of the value
  int pointers = 0;  ///< stars, references and arrays
  bool points_to_const = false;
  std::string text() const { return joined(words); }
  /// A single name: "T", "Params".
  std::string word() const { return words.size() == 1 && words[0].is_word() ? words[0].text : std::string(); }
};
PlainType plain_type(const Tokens& type, const CudaSource& source);

/// "float", "std::int32_t", "unsigned long long", "__half"
std::optional<Dtype> dtype_of(const PlainType& type);
/// "float4": its element and how many there are.
struct VectorElement {
  Dtype dtype;
  int count;
};
std::optional<VectorElement> vector_element(const PlainType& type);
/// "i32", "f64", "tensormap" ... of what is passed by value; empty: none that manifests have a word for.
std::string value_type(const PlainType& type);
bool is_integer(const PlainType& type);
bool is_boolean(const PlainType& type);

/// The dtypes' names in CUDA: "__nv_bfloat16".
std::string_view cuda_name(Dtype dtype);

}  // namespace kiln::cli
