#include "compile/advice/language.hpp"

#include <algorithm>
#include <array>

namespace kiln::compile {
namespace {

/// The host call that the log complains about, if any.
std::optional<std::string> host_call_in(const Diagnostic& error) {
  if (const auto name = undefined_name(error); name && is_host_call(*name)) return std::string(*name);
  if (const auto member = between(error.message, "namespace \"std\" has no member \"", "\"")) {
    std::string name = "std::" + std::string(*member);
    if (is_host_call(name)) return name;
  }
  return std::nullopt;
}

bool is_of_toolkit(const Diagnostic& error) { return error.file.starts_with(".t"); }

/// True when the log has a more basic error for the same line, from which this error follows.
bool follows_from_another(const Diagnostic& error, const AdviceCase& in) {
  return std::any_of(in.errors.begin(), in.errors.end(), [&](const Diagnostic& other) {
    return other.line == error.line && other.file == error.file &&
           (undefined_name(other) || holds(other.message, "has no member \"") ||
            holds(other.message, "name followed by \"::\"") || holds(other.message, "is not a template"));
  });
}

/// Advice for a source that has a launcher beside its kernels. The options compile the launcher as device
/// code, which is then dropped.
std::string or_as_device_code(const AdviceCase& in) {
  if (in.has_option("--pre-include=nvcc.h") && in.has_option("--pre-include=unmark_host.h")) return {};
  return "; or, for a launcher beside its kernels, preinclude = [\"nvcc.h\", \"unmark_host.h\"] with "
         "host_headers = \"shim\" and default_device = true lets it compile as device code that is dropped";
}

std::optional<std::string> host_call(const Diagnostic& error, const AdviceCase& in) {
  const auto name = host_call_in(error);
  if (!name) return std::nullopt;
  // A type that --minimal takes away is not host code.
  if (in.has_option("--minimal") &&
      (name->ends_with("_t") || name->starts_with("cudaSuccess") || name->starts_with("cudaError")))
    return std::nullopt;
  if (*name == "cudaGridDependencySynchronize" || *name == "cudaTriggerProgrammaticLaunchCompletion")
    return named(*name, error) +
           " is a device function of a header that NVRTC does not include by itself: preinclude = "
           "[\"cuda_device_runtime_api.h\"] in [compile] includes it";
  return named(*name, error) +
         " is host code, and NVRTC compiles device code only: move functions that allocate, launch or print "
         "on the host into another file; when they are in a header, replace = { \"HEADER\" = \"stub.h\" } in "
         "[compile] gives it a stand-in" +
         or_as_device_code(in);
}

std::optional<std::string> host_function(const Diagnostic& error, const AdviceCase& in) {
  const bool plain = error.message.starts_with("A function without execution space annotations");
  const bool marked = error.message.starts_with("A function explicitly marked as a __host__ function");
  const bool called = holds(error.message, "calling a __host__ function") ||
                      holds(error.message, "calling a constexpr __host__ function");
  if (!plain && !marked && !called) return std::nullopt;
  if (is_of_toolkit(error))
    return "the toolkit header of " + error.location() +
           " has a host side, which NVRTC does not compile: include the headers for code that runs inside a "
           "block (cub/block/..., cub/warp/...) instead of cub/device and thrust";
  const auto name = called ? between(error.message, "function(\"", "\")") : std::optional(error.word);
  const std::string who =
      name && !name->empty() ? named(*name, error) : "a function (" + error.location() + ')';
  if (plain && error.word == "main")
    return who + " is host code, and NVRTC compiles device code only: move the program into another file";
  if (plain && std::any_of(in.errors.begin(), in.errors.end(),
                           [](const Diagnostic& other) { return host_call_in(other).has_value(); }))
    return std::nullopt;  // the rule host_call reports it
  if (marked)
    return who +
           " is marked __host__: NVRTC compiles device code only; mark it __host__ __device__, move it "
           "into another file, or give its header a stand-in ([compile] replace)" +
           or_as_device_code(in);
  if (in.has_option("-default-device"))
    return who +
           " is a host function that device code calls: mark it __device__, or give its header a "
           "stand-in ([compile] replace)";
  return who +
         " is not marked __device__, so it is a host function, which NVRTC does not compile: "
         "default_device = true in [compile] makes such functions device functions; move functions "
         "that launch kernels or call the CUDA runtime into another file";
}

std::optional<std::string> host_variable(const Diagnostic& error, const AdviceCase& in) {
  if (!error.message.starts_with("A namespace scope variable without memory space annotations") ||
      follows_from_another(error, in))
    return std::nullopt;
  return (error.word.empty() ? "a variable (" + error.location() + ')' : named(error.word, error)) +
         " is not marked __device__ or __constant__, so it is a host variable: default_device = true in "
         "[compile] makes such variables device variables; a constexpr variable needs no mark";
}

std::optional<std::string> kernel_launch(const Diagnostic& error, const AdviceCase& in) {
  const bool launch = error.message.starts_with("device-side kernel launch could not be processed");
  if (!launch && !holds(error.message, "Unresolved extern function '__cudaCDP2") &&
      !holds(error.message, "Unresolved extern function 'cudaGetParameterBuffer"))
    return std::nullopt;
  const std::string location = error.location();
  return "a kernel is launched with <<<...>>>" + (location.empty() ? "" : " (" + location + ')') +
         ": host functions that launch have to move into another file (describe the geometry in [launch]); "
         "launches from device code need relocatable code, which kiln does not have" +
         or_as_device_code(in);
}

std::optional<std::string> exception(const Diagnostic& error, const AdviceCase&) {
  if (!holds(error.message, "does not support exception handling")) return std::nullopt;
  return "device code has no exceptions, and " + error.location() +
         " throws or catches: in a header, replace = { \"HEADER\" = \"stub.h\" } in [compile] puts a "
         "stand-in in its place; in the source, guard the code with #ifndef __CUDA_ARCH__";
}

std::optional<std::string> wide_integer(const Diagnostic& error, const AdviceCase&) {
  if (!holds(error.message, "--device-int128")) return std::nullopt;
  return "__int128 (" + error.location() + ") needs options = [\"--device-int128\"] in [compile]";
}

std::optional<std::string> type_information(const Diagnostic& error, const AdviceCase&) {
  // NVRTC says on stderr only what is broken. Of the code that users write, dynamic_cast
  // is known to cause it.
  if (holds(error.message, "Broken module found"))
    return "NVRTC reports dynamic_cast, among other things, this way: device code has no run-time type "
           "information; make the choice at compile time (templates, std::is_same)";
  if (!holds(error.message, "<typeinfo> must be included before typeid")) return std::nullopt;
  return "device code has no run-time type information, which typeid (" + error.location() +
         ") needs: make the choice at compile time (templates, std::is_same)";
}

std::optional<std::string> storage(const Diagnostic& error, const AdviceCase&) {
  if (holds(error.message, "cannot use thread_local specifier"))
    return "device code has no thread_local variables (" + error.location() +
           "): a local variable of the kernel is each thread's own";
  const auto what = between(error.message, "dynamic initialization is not supported for a ", " variable");
  if (!what) return std::nullopt;
  return "the " + std::string(*what) + " variable " +
         (error.word.empty() ? "of " + error.location() : named(error.word, error)) +
         " is initialised at run time, and nothing runs before a kernel: give it a constant initialiser (a "
         "constexpr constructor), or set it in the kernel or through [[global]]";
}

std::optional<std::string> lambda(const Diagnostic& error, const AdviceCase& in) {
  if (holds(error.message, "--extended-lambda") || holds(error.message, "closure type for a lambda") ||
      holds(error.message, "a lambda is not allowed in an unevaluated expression"))
    return "a lambda" +
           (error.location().empty() || error.file.starts_with("__nv") ? std::string()
                                                                       : " (" + error.location() + ')') +
           " cannot be a template argument of a kernel: write a struct with a __device__ operator(), and "
           "name it in a parameter of kind \"type\"";
  if (holds(error.message,
            "execution space for the lambda closure class members was inferred to be "
            "__host__") &&
      !in.has_option("-default-device"))
    return "a lambda outside of functions (" + error.location() +
           ") is host code: default_device = true in [compile] makes it device code";
  return std::nullopt;
}

std::optional<std::string> standard(const Diagnostic& error, const AdviceCase& in) {
  std::string wanted;
  for (const std::string_view version : {"17", "20"}) {
    const std::string name = "C++" + std::string(version);
    if (holds(error.message, " is a " + name) || holds(error.message, "requires at least " + name) ||
        holds(error.message, "requires " + name))
      wanted = version;
  }
  if (const auto name = undefined_name(error); name && (*name == "concept" || *name == "requires"))
    wanted = "20";
  if (wanted.empty() || in.has_option("-std=c++20") || in.has_option("-std=c++" + wanted))
    return std::nullopt;
  return error.location() + " needs C++" + wanted + ": std = \"c++" + wanted + "\" in [compile]";
}

std::optional<std::string> byte_order_mark(const Diagnostic& error, const AdviceCase&) {
  if (error.line != "1" || !holds(error.source, "\xef\xbb\xbf")) return std::nullopt;
  return error.location() +
         " begins with a byte order mark (EF BB BF), which nvcc accepts and NVRTC does not: save the file "
         "without it, or replace a header by a copy without it ([compile] replace)";
}

}  // namespace

std::span<const AdviceRule> language_rules() {
  static constexpr std::array<AdviceRule, 11> rules{
      byte_order_mark, wide_integer,     standard, kernel_launch, exception,    lambda,
      host_call,       type_information, storage,  host_function, host_variable};
  return rules;
}

}  // namespace kiln::compile
