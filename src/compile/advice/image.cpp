#include "compile/advice/image.hpp"

#include <cxxabi.h>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace kiln::compile {
namespace {

std::string in_cpp(std::string_view symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(std::string(symbol).c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? text.get() : std::string(symbol);
}

/// Turns "(0x13880 bytes, 0xc000 max)" into "80000 bytes, and 49152".
std::string amounts_of(std::string_view message) {
  const auto number = [](std::optional<std::string_view> hex) -> std::string {
    std::uint64_t value = 0;
    if (!hex || std::from_chars(hex->data(), hex->data() + hex->size(), value, 16).ec != std::errc{})
      return "?";
    return std::to_string(value);
  };
  return number(between(message, "(0x", " bytes")) + " bytes, and " +
         number(between(message, "bytes, 0x", " max"));
}

std::string another_source(const AdviceCase& in) {
  return "[arch." + std::string(in.subject.arch) + "] can give this arch a source without it";
}

/// The claim of [template] arch that asks for the fewest features with the instruction `what`, which `arch` lacks.
/// Compiles of NVRTC 13.0 say so: tcgen05 exists in sm_100f except for a few forms, and in no target of 12.x.
std::string archs_that_have(std::string_view what, std::string_view arch) {
  const bool family = arch.ends_with("f"), base = arch.ends_with("_base");
  std::string only = "[...]";
  if (what.starts_with("wgmma"))
    only = "[\"sm_90a\"]";
  else if (what.starts_with("tcgen05"))
    only = family && arch.starts_with("sm_10") ? "[\"sm_100a\", \"sm_103a\"]" : "[\"sm_100f\"]";
  else if (family || base)
    return "features = " + std::string(base ? "\"family\", or else " : "") +
           "\"exact\" in [template] arch makes images with more instructions, for fewer GPUs";
  return "arch = { only = " + only + " } in [template] names the archs that have it";
}

std::optional<std::string> arch_without(const Diagnostic& error, const AdviceCase& in) {
  if (const auto wanted = between(error.message, " requires .target ", " or higher")) {
    const auto feature = between(error.message, "'", "'");
    return '\'' + std::string(feature.value_or("this")) + "' needs " + std::string(*wanted) +
           ", and this is for " + std::string(in.subject.arch) + ": arch = { min = \"" +
           std::string(*wanted) + "\" } in [template] refuses this arch before a compile; " +
           another_source(in);
  }
  const auto instruction = between(error.message, "Instruction '", "' not supported on .target");
  const auto feature = between(error.message, "Feature '", "' requires .target ");
  if (!instruction && !feature) return std::nullopt;
  const std::string_view what = instruction ? *instruction : *feature;
  return '\'' + std::string(what) + "' does not exist on " + std::string(in.subject.arch) + ": " +
         archs_that_have(what, in.subject.arch) + "; " + another_source(in);
}

std::optional<std::string> unknown_instruction(const Diagnostic& error, const AdviceCase&) {
  const auto name = between(error.message, "Not a name of any known instruction: '", "'");
  if (!name) return std::nullopt;
  return "this toolkit's ptxas does not know the instruction '" + std::string(*name) +
         "' of an asm statement: check its spelling, and whether it needs another arch or a newer toolkit "
         "(KILN_CUDA_HOME)";
}

std::optional<std::string> no_definition(const Diagnostic& error, const AdviceCase&) {
  const auto symbol = between(error.message, "Unresolved extern function '", "'");
  if (!symbol || symbol->starts_with("__cudaCDP2") || symbol->starts_with("cudaGetParameterBuffer"))
    return std::nullopt;
  return '\'' + in_cpp(*symbol) +
         "' is declared and not defined: an image is made of one source, without linking (no relocatable "
         "code); include the file that defines it";
}

std::string take_less_shared(const std::string& amounts) {
  return "the kernel's __shared__ variables take " + amounts +
         " are allowed: make them smaller by a parameter, or use dynamic shared memory (extern __shared__), "
         "whose size smem in [launch] states";
}

std::string take_less_constant(const std::string& amounts) {
  return "the source's __constant__ variables take " + amounts +
         " are allowed: make them __device__ const, or pass them through a pointer";
}

std::optional<std::string> too_much(const Diagnostic& error, const AdviceCase&) {
  if (holds(error.message, "uses too much shared data")) return take_less_shared(amounts_of(error.message));
  if (holds(error.message, "uses too much global constant data"))
    return take_less_constant(amounts_of(error.message));
  if (const auto sizes = between(error.message, "Formal parameter space overflowed (", ")"))
    return "the kernel's arguments are too large (" + std::string(*sizes) +
           "): pass a pointer to the structure instead";
  if (holds(error.message, "Insufficient registers ("))
    return "the kernel does not fit the " +
           std::string(between(error.message, "Insufficient registers (", ")").value_or("?")) +
           " registers that a thread may use: raise -maxrregcount in [compile] options, "
           "or __launch_bounds__ in the source, or make it smaller by a parameter";
  return std::nullopt;
}

}  // namespace

std::span<const AdviceRule> image_rules() {
  static constexpr std::array<AdviceRule, 4> rules{arch_without, unknown_instruction, no_definition,
                                                   too_much};
  return rules;
}

}  // namespace kiln::compile
