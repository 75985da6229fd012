#include "compile/advice/names.hpp"

#include <algorithm>
#include <array>

namespace kiln::compile {
namespace {

constexpr std::string_view kShims[] = {"algorithm",
                                       "array",
                                       "assert.h",
                                       "atomic",
                                       "bit",
                                       "cassert",
                                       "cfloat",
                                       "chrono",
                                       "cinttypes",
                                       "climits",
                                       "cmath",
                                       "concepts",
                                       "condition_variable",
                                       "cstddef",
                                       "cstdint",
                                       "cstdio",
                                       "cstdlib",
                                       "cstring",
                                       "deque",
                                       "exception",
                                       "float.h",
                                       "fstream",
                                       "functional",
                                       "initializer_list",
                                       "inttypes.h",
                                       "iomanip",
                                       "iosfwd",
                                       "iostream",
                                       "istream",
                                       "iterator",
                                       "limits",
                                       "limits.h",
                                       "map",
                                       "math.h",
                                       "memory",
                                       "mutex",
                                       "new",
                                       "numeric",
                                       "optional",
                                       "ostream",
                                       "random",
                                       "set",
                                       "sstream",
                                       "stddef.h",
                                       "stdexcept",
                                       "stdint.h",
                                       "stdio.h",
                                       "stdlib.h",
                                       "string",
                                       "string.h",
                                       "string_view",
                                       "thread",
                                       "tuple",
                                       "type_traits",
                                       "typeinfo",
                                       "unistd.h",
                                       "unordered_map",
                                       "unordered_set",
                                       "utility",
                                       "variant",
                                       "vector"};

struct Declared {
  std::string_view name, header;
};

constexpr Declared kStd[] = {{"min", "algorithm"},
                             {"max", "algorithm"},
                             {"clamp", "algorithm"},
                             {"fill", "algorithm"},
                             {"sort", "algorithm"},
                             {"swap", "utility"},
                             {"move", "utility"},
                             {"forward", "utility"},
                             {"pair", "utility"},
                             {"make_pair", "utility"},
                             {"declval", "utility"},
                             {"integer_sequence", "utility"},
                             {"index_sequence", "utility"},
                             {"make_index_sequence", "utility"},
                             {"tuple", "tuple"},
                             {"make_tuple", "tuple"},
                             {"get", "tuple"},
                             {"tie", "tuple"},
                             {"array", "array"},
                             {"initializer_list", "initializer_list"},
                             {"numeric_limits", "limits"},
                             {"is_same", "type_traits"},
                             {"is_same_v", "type_traits"},
                             {"enable_if", "type_traits"},
                             {"enable_if_t", "type_traits"},
                             {"conditional", "type_traits"},
                             {"conditional_t", "type_traits"},
                             {"decay_t", "type_traits"},
                             {"remove_reference_t", "type_traits"},
                             {"remove_cv_t", "type_traits"},
                             {"is_integral", "type_traits"},
                             {"is_integral_v", "type_traits"},
                             {"is_floating_point", "type_traits"},
                             {"is_floating_point_v", "type_traits"},
                             {"integral_constant", "type_traits"},
                             {"true_type", "type_traits"},
                             {"false_type", "type_traits"},
                             {"void_t", "type_traits"},
                             {"function", "functional"},
                             {"plus", "functional"},
                             {"accumulate", "numeric"},
                             {"sqrt", "cmath"},
                             {"exp", "cmath"},
                             {"log", "cmath"},
                             {"pow", "cmath"},
                             {"fabs", "cmath"},
                             {"abs", "cmath"},
                             {"fmax", "cmath"},
                             {"fmin", "cmath"},
                             {"floor", "cmath"},
                             {"ceil", "cmath"},
                             {"isnan", "cmath"},
                             {"isinf", "cmath"},
                             {"tanh", "cmath"},
                             {"size_t", "cstddef"},
                             {"ptrdiff_t", "cstddef"},
                             {"nullptr_t", "cstddef"},
                             {"byte", "cstddef"},
                             {"memcpy", "cstring"},
                             {"memset", "cstring"},
                             {"string", "string"},
                             {"to_string", "string"},
                             {"vector", "vector"},
                             {"unique_ptr", "memory"},
                             {"shared_ptr", "memory"},
                             {"ostringstream", "sstream"},
                             {"stringstream", "sstream"},
                             {"runtime_error", "stdexcept"},
                             {"invalid_argument", "stdexcept"},
                             {"printf", "cstdio"}};

constexpr Declared kGlobal[] = {
    {"INFINITY", "cmath"},     {"NAN", "cmath"},          {"HUGE_VAL", "cmath"},   {"HUGE_VALF", "cmath"},
    {"M_PI", "cmath"},         {"M_E", "cmath"},          {"M_LOG2E", "cmath"},    {"M_SQRT1_2", "cmath"},
    {"M_SQRT2", "cmath"},      {"M_2_SQRTPI", "cmath"},   {"FLT_MAX", "cfloat"},   {"FLT_MIN", "cfloat"},
    {"FLT_EPSILON", "cfloat"}, {"DBL_MAX", "cfloat"},     {"DBL_MIN", "cfloat"},   {"DBL_EPSILON", "cfloat"},
    {"INT_MAX", "climits"},    {"INT_MIN", "climits"},    {"UINT_MAX", "climits"}, {"LONG_MAX", "climits"},
    {"LLONG_MAX", "climits"},  {"ULLONG_MAX", "climits"}, {"CHAR_BIT", "climits"}, {"SHRT_MAX", "climits"}};

constexpr Declared kToolkit[] = {{"half", "cuda_fp16.h"},          {"half2", "cuda_fp16.h"},
                                 {"__half", "cuda_fp16.h"},        {"__half2", "cuda_fp16.h"},
                                 {"nv_bfloat16", "cuda_bf16.h"},   {"nv_bfloat162", "cuda_bf16.h"},
                                 {"__nv_bfloat16", "cuda_bf16.h"}, {"__nv_bfloat162", "cuda_bf16.h"}};

template <std::size_t N>
std::optional<std::string_view> header_of(const Declared (&table)[N], std::string_view name) {
  const auto found =
      std::find_if(std::begin(table), std::end(table), [&](const Declared& d) { return d.name == name; });
  if (found == std::end(table)) return std::nullopt;
  return found->header;
}

/// True for uint32_t, int_fast8_t, uintptr_t, INT64_MAX, ...
bool is_fixed_width(std::string_view name) {
  if (name == "uintptr_t" || name == "intptr_t") return true;
  if (name.starts_with("u") || name.starts_with("U")) name.remove_prefix(1);
  const bool type = name.starts_with("int") && name.ends_with("_t");
  const bool limit = name.starts_with("INT") && (name.ends_with("_MAX") || name.ends_with("_MIN"));
  if (!type && !limit) return false;
  return name.find_first_of("123468") != std::string_view::npos;
}

std::optional<std::string_view> toolkit_header(std::string_view name) {
  if (const auto header = header_of(kToolkit, name)) return header;
  if (name.starts_with("__nv_fp8")) return "cuda_fp8.h";
  if (name.starts_with("__nv_fp6")) return "cuda_fp6.h";
  if (name.starts_with("__nv_fp4")) return "cuda_fp4.h";
  if (name.starts_with("curandState")) return "curand_kernel.h";
  return std::nullopt;
}

bool is_torch(std::string_view header) {
  for (const std::string_view prefix : {"torch/", "ATen/", "c10/", "pybind11/"}) {
    if (header.starts_with(prefix)) return true;
  }
  return header == "Python.h";
}

std::string in_quotes(std::string_view text) { return '"' + std::string(text) + '"'; }

std::string stand_in(std::string_view header) {
  return "replace = { " + in_quotes(header) + " = \"stub.h\" } in [compile] gives it a stand-in";
}

std::optional<std::string> missing_header(const Diagnostic& error, const AdviceCase& in) {
  // The message begins with "could not ..." when there is no search directory.
  const auto header = between(error.message, "not open source file \"", "\"");
  if (!header) return std::nullopt;
  const std::string name = named(*header, error);
  if (in.subject.shims == source::HostHeaders::none &&
      std::find(std::begin(kShims), std::end(kShims), *header) != std::end(kShims))
    return name +
           " is a host header, which NVRTC does not have: host_headers = \"shim\" in [compile] adds "
           "kiln's own, as far as device code needs it";
  if (is_torch(*header))
    return name +
           " belongs to the host side, which NVRTC does not compile: host_headers = \"shim\" and "
           "host_code = \"cut\" in [compile] cut the host side away and bring kiln's stubs for PyTorch "
           "('kiln import' tries both); or " +
           stand_in(*header);
  if (header->find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string_view::npos)  // "span"
    return name +
           " is named like a header of the C++ standard library, and kiln has no shim for it: device code "
           "includes <cuda/std/" +
           std::string(*header) + ">, where the toolkit has it; when the kernel does not need it, " +
           stand_in(*header);
  return name +
         " was not found: name its directory in [compile] include_dirs (or in KILN_INCLUDE_PATH); "
         "when the kernel does not need it, " +
         stand_in(*header);
}

/// This rule runs before the rule of host calls: --minimal removes types and functions
/// that device code may use.
std::optional<std::string> left_out_by_minimal(const Diagnostic& error, const AdviceCase& in) {
  const auto name = undefined_name(error);
  if (!name || !in.has_option("--minimal")) return std::nullopt;
  const bool type = name->starts_with("cuda") && name->ends_with("_t");
  const bool value = name->starts_with("cudaSuccess") || name->starts_with("cudaError") ||
                     name->starts_with("cudaAddressMode") || name->starts_with("cudaBoundaryMode");
  const bool texture =
      (name->starts_with("tex") || name->starts_with("surf")) && name->find('D') != name->npos;
  if (!type && !value && !texture) return std::nullopt;
  return "minimal = true in [compile] leaves out " + named(*name, error) +
         ": textures, surfaces and CUB do not compile with minimal; remove minimal";
}

std::optional<std::string> declared_elsewhere(const Diagnostic& error, const AdviceCase& in) {
  if (error.file.starts_with("[export] ")) return std::nullopt;
  std::string name;
  std::optional<std::string_view> shim;
  const bool shims = in.subject.shims == source::HostHeaders::shim;
  if (const auto member = between(error.message, "namespace \"std\" has no member \"", "\"")) {
    if (is_host_call("std::" + std::string(*member))) return std::nullopt;
    name = "std::" + std::string(*member);
    shim = is_fixed_width(*member) ? "cstdint" : header_of(kStd, *member);
    if (!shim)
      return named(name, error) + " is not declared: NVRTC has no C++ standard library. " +
             (shims ? "kiln's shims have the names that device code uses most"
                    : "host_headers = \"shim\" in [compile] declares the names that device code uses most") +
             "; the toolkit's <cuda/std/...> declares more, as cuda::" + name;
  } else if (const auto undefined = undefined_name(error)) {
    name = *undefined;
    if (const auto toolkit = toolkit_header(name))
      return named(name, error) + " is declared by <" + std::string(*toolkit) +
             ">, which the source does not include: preinclude = [" + in_quotes(*toolkit) +
             "] in [compile] includes it before the source";
    shim = is_fixed_width(name) ? "cstdint" : header_of(kGlobal, name);
  }
  if (!shim) return std::nullopt;
  return named(name, error) + " is declared by <" + std::string(*shim) +
         ">, which the source does not include: " + (shims ? "" : "host_headers = \"shim\" and ") +
         "preinclude = [" + in_quotes(*shim) + "] in [compile] " + (shims ? "includes" : "include") +
         " kiln's own before the source";
}

std::optional<std::string> torch_name(const Diagnostic& error, const AdviceCase& in) {
  if (in.subject.cut_host_code) return std::nullopt;
  if (!holds(error.message, "name followed by \"::\" must be a class or namespace name")) return std::nullopt;
  if (error.word != "at" && error.word != "torch" && error.word != "c10") return std::nullopt;
  return named(error.word, error) +
         " is PyTorch's namespace, and belongs to the host side: host_headers = \"shim\" and host_code = "
         "\"cut\" in [compile] cut away functions that take tensors; or move them into another file";
}

}  // namespace

std::span<const std::string_view> shimmed_headers() { return kShims; }

bool is_host_call(std::string_view name) {
  for (const std::string_view io : {"fprintf", "stderr", "stdout", "fflush", "exit", "std::cout", "std::cerr",
                                    "std::endl", "std::exit", "cout", "cerr", "endl", "getenv"}) {
    if (name == io) return true;
  }
  const auto capital = [](std::string_view rest) {
    return !rest.empty() && rest[0] >= 'A' && rest[0] <= 'Z';
  };
  return (name.starts_with("cuda") && capital(name.substr(4))) ||
         (name.starts_with("cu") && capital(name.substr(2))) || name.starts_with("cublas") ||
         name.starts_with("nvml");
}

std::span<const AdviceRule> name_rules() {
  static constexpr std::array<AdviceRule, 4> rules{missing_header, left_out_by_minimal, declared_elsewhere,
                                                   torch_name};
  return rules;
}

}  // namespace kiln::compile
