#include "tools/kiln/import/types.hpp"

#include <algorithm>
#include <utility>

namespace kiln::cli {
namespace {

struct Known {
  std::string_view text;
  Dtype dtype;
};
/// The first name of a dtype is the one that is shown.
constexpr Known kDtypes[] = {
    {"float", Dtype::f32},
    {"__half", Dtype::f16},
    {"half", Dtype::f16},
    {"nv_half", Dtype::f16},
    {"__nv_bfloat16", Dtype::bf16},
    {"nv_bfloat16", Dtype::bf16},
    {"__nv_fp8_e4m3", Dtype::e4m3},
    {"__nv_fp8_e5m2", Dtype::e5m2},
    {"double", Dtype::f64},
    {"int8_t", Dtype::i8},
    {"signed char", Dtype::i8},
    {"char", Dtype::i8},
    {"uint8_t", Dtype::u8},
    {"unsigned char", Dtype::u8},
    {"bool", Dtype::u8},
    {"int32_t", Dtype::i32},
    {"int", Dtype::i32},
    {"signed", Dtype::i32},
    {"signed int", Dtype::i32},
    {"uint32_t", Dtype::u32},
    {"unsigned", Dtype::u32},
    {"unsigned int", Dtype::u32},
    {"uint", Dtype::u32},
    {"int64_t", Dtype::i64},
    {"long long", Dtype::i64},
    {"long long int", Dtype::i64},
    {"long", Dtype::i64},
    {"long int", Dtype::i64},
    {"ptrdiff_t", Dtype::i64},
    {"ssize_t", Dtype::i64},
    {"uint64_t", Dtype::u64},
    {"unsigned long long", Dtype::u64},
    {"unsigned long long int", Dtype::u64},
    {"unsigned long", Dtype::u64},
    {"unsigned long int", Dtype::u64},
    {"size_t", Dtype::u64},
    {"uintptr_t", Dtype::u64},
};
constexpr Known kVectorPrefixes[] = {{"float", Dtype::f32},    {"double", Dtype::f64},   {"int", Dtype::i32},
                                     {"uint", Dtype::u32},     {"char", Dtype::i8},      {"uchar", Dtype::u8},
                                     {"longlong", Dtype::i64}, {"ulonglong", Dtype::u64}};
constexpr std::string_view kOtherIntegers[] = {"short",  "short int", "unsigned short", "unsigned short int",
                                               "ushort", "int16_t",   "uint16_t",       "auto"};

void drop_namespaces(Tokens& words) {
  const auto is_std = [](const Token& t) { return t.is("std") || t.is("cuda") || t.is("kiln"); };
  while (words.size() >= 2 && (words[0].is("::") || (is_std(words[0]) && words[1].is("::"))))
    words.erase(words.begin(), words.begin() + (words[0].is("::") ? 1 : 2));
}

/// Sorts the words to "unsigned long long", whatever their order was.
void order_integer(Tokens& words) {
  const auto rank = [](const Token& t) {
    return t.is("unsigned") ? 0 : t.is("signed") ? 1 : t.is("int") ? 3 : 2;
  };
  constexpr std::string_view pieces[] = {"unsigned", "signed", "long", "short", "int", "char"};
  const bool all = std::all_of(words.begin(), words.end(), [&](const Token& t) {
    return std::find(std::begin(pieces), std::end(pieces), t.text) != std::end(pieces);
  });
  if (all)
    std::stable_sort(words.begin(), words.end(),
                     [&](const Token& a, const Token& b) { return rank(a) < rank(b); });
}

}  // namespace

PlainType plain_type(const Tokens& type, const CudaSource& source) {
  PlainType out;
  Tokens rest = type;
  for (int followed = 0; followed < 8; ++followed) {
    int depth = 0;
    bool constant = false;
    Tokens words;
    for (Token& t : rest) {
      if (t.is("<")) ++depth;
      if (t.is(">")) --depth;
      if (depth == 0 && (t.is("*") || t.is("&") || t.is("&&"))) {
        if (out.pointers++ == 0) out.points_to_const = constant || out.points_to_const;
      } else if (depth == 0 && t.is("const")) {
        constant = true;
      } else if (t.is("struct") || t.is("class") || t.is("enum") || t.is("typename") || t.is("volatile")) {
        continue;
      } else {
        words.push_back(std::move(t));
      }
    }
    drop_namespaces(words);
    order_integer(words);
    if (out.pointers > 0 && constant && followed > 0) out.points_to_const = true;
    out.words = std::move(words);
    const auto alias = source.aliases.find(out.word());
    if (alias == source.aliases.end() || out.word().empty()) break;
    rest = alias->second;
  }
  return out;
}

std::optional<Dtype> dtype_of(const PlainType& type) {
  const std::string text = type.text();
  for (const Known& known : kDtypes)
    if (known.text == text) return known.dtype;
  return dtype_from(text);  // the names in the slim headers and in other projects
}

std::optional<VectorElement> vector_element(const PlainType& type) {
  const std::string text = type.text();
  if (text == "half2" || text == "__half2") return VectorElement{Dtype::f16, 2};
  if (text == "__nv_bfloat162" || text == "nv_bfloat162") return VectorElement{Dtype::bf16, 2};
  if (text.size() < 2 || text.back() < '1' || text.back() > '4') return std::nullopt;
  const std::string_view prefix(text.data(), text.size() - 1);
  for (const Known& known : kVectorPrefixes)
    if (known.text == prefix) return VectorElement{known.dtype, text.back() - '0'};
  return std::nullopt;
}

std::string value_type(const PlainType& type) {
  const std::string text = type.text();
  if (text == "CUtensorMap" || text == "CUtensorMap_st") return "tensormap";
  if (text == "cudaTextureObject_t" || text == "CUtexObject") return "texture";
  if (text == "cudaSurfaceObject_t" || text == "CUsurfObject") return "surface";
  const auto dtype = dtype_of(type);
  if (!dtype || text == "bool") return {};
  switch (*dtype) {
    case Dtype::i32:
    case Dtype::u32:
    case Dtype::i64:
    case Dtype::u64:
    case Dtype::f32:
    case Dtype::f64:
      return std::string(to_string(*dtype));
    default:
      return {};
  }
}

bool is_boolean(const PlainType& type) { return type.text() == "bool"; }

bool is_integer(const PlainType& type) {
  const std::string text = type.text();
  if (std::find(std::begin(kOtherIntegers), std::end(kOtherIntegers), text) != std::end(kOtherIntegers))
    return true;
  const auto dtype = dtype_of(type);
  if (!dtype || is_boolean(type)) return false;
  switch (*dtype) {
    case Dtype::i8:
    case Dtype::u8:
    case Dtype::i32:
    case Dtype::u32:
    case Dtype::i64:
    case Dtype::u64:
      return true;
    default:
      return false;
  }
}

std::string_view cuda_name(Dtype dtype) {
  for (const Known& known : kDtypes)
    if (known.dtype == dtype) return known.text;
  return "float";
}

}  // namespace kiln::cli
