// The errors of kiln: one root type with a code, and one that carries a compiler's log.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace kiln {
inline namespace v1 {

/// What went wrong, in classes that a caller can act on. Values are those of `kiln_status` in kiln.h.
enum class Errc : int {
  ok = 0,
  invalid_argument =
      1,  ///< a call that can never be right: null where a value is needed, wrong argument count or type
  unknown_template = 2,   ///< no template of that name on the template path
  unknown_parameter = 3,  ///< the template has no such parameter, or one that has no default was not given
  invalid_value = 4,      ///< a parameter's value is not in its whitelist
  requirement = 5,        ///< a `[[require]]` of the manifest does not hold
  manifest = 6,           ///< the manifest itself is wrong; the message names file and line
  source = 7,             ///< a source or included file is missing, unreadable or outside the include path
  unsupported_arch = 8,   ///< the template or the compiler has no code for this architecture
  compile_failed = 9,     ///< the compiler refused the source (CompileError)
  compile_timeout = 10,   ///< the compile was killed at its deadline (CompileError)
  compile_crashed = 11,   ///< the compiler died or ran out of memory (CompileError)
  no_compiler = 12,       ///< no usable NVRTC; the message lists what was tried
  no_driver = 13,         ///< no CUDA driver, device or current context
  driver = 14,            ///< a CUDA driver call failed; the message names call and error
  not_ready =
      15,         ///< sealed, or inside a stream capture: the kernel is not in memory and may not be made now
  deadline = 16,  ///< the caller's deadline passed
  io = 17,        ///< a file that the caller named cannot be read or written
  internal = 18,  ///< a defect of kiln
};

/// Root of everything kiln throws. The message names the thing, the value and what was allowed.
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
