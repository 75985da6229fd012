// The errors of kiln: a root type with a code, and a type for failed compiles.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace kiln {
inline namespace v1 {

/// The kinds of errors, by what a caller can do about them. `kiln_status` in kiln.h has the same values.
enum class Errc : int {
  ok = 0,
  /// The call can never succeed: null where a value is needed, or a wrong count or type of arguments.
  invalid_argument = 1,
  unknown_template = 2,  ///< the template path has no template of that name
  /// The template has no such parameter, or a parameter without a default was not given.
  unknown_parameter = 3,
  invalid_value = 4,     ///< the manifest does not allow this value of a parameter
  requirement = 5,       ///< a `[[require]]` of the manifest does not hold
  manifest = 6,          ///< the manifest itself is wrong; the message names file and line
  source = 7,            ///< a source or included file is missing, unreadable or outside the include path
  unsupported_arch = 8,  ///< the template or the compiler does not support this arch
  compile_failed = 9,    ///< the compiler refused the source (CompileError)
  compile_timeout = 10,  ///< the compile was killed at its deadline (CompileError)
  compile_crashed = 11,  ///< the compiler died or ran out of memory (CompileError)
  no_compiler = 12,      ///< no usable NVRTC; the message lists what was tried
  no_driver = 13,        ///< no CUDA driver, device or current context
  driver = 14,           ///< a CUDA driver call failed; the message names call and error
  /// The kernel is not in memory, and a seal or a stream capture forbids to make it now.
  not_ready = 15,
  deadline = 16,  ///< the caller's deadline passed
  io = 17,        ///< a file that the caller named cannot be read or written
  internal = 18,  ///< a defect of kiln
};

/// The root of all exceptions of kiln. The message names the thing, the value and what was allowed.
class Error : public std::runtime_error {
 public:
  Error(Errc code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Errc code() const noexcept { return code_; }

 private:
  Errc code_;
};

/// A compile that failed, timed out or crashed.
class CompileError : public Error {
 public:
  CompileError(Errc code, const std::string& message, std::string specialization, std::string options,
               std::string log)
      : Error(code, message),
        specialization_(std::move(specialization)),
        options_(std::move(options)),
        log_(std::move(log)) {}
  /// "rms_norm T=bf16 H=4096".
  const std::string& specialization() const noexcept { return specialization_; }
  /// The compiler options, separated by newlines.
  const std::string& options() const noexcept { return options_; }
  /// At most the first 16 KB of the compiler's log.
  const std::string& log() const noexcept { return log_; }

 private:
  std::string specialization_, options_, log_;
};

}  // namespace v1
}  // namespace kiln
