// The values of a call of `kiln run`: scalar arguments, [runtime] and [work_list.run].
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/service/service.hpp"

namespace kiln::cli {

/// Values that the user of `kiln run` set, by argument or run-time value name.
using GivenArguments = std::map<std::string, std::string, std::less<>>;

/// All values that expressions of one call read, and the scalar arguments of the call.
class CallValues {
 public:
  /// Resolves every value. `exports` are the image's exports, which shapes may read. Keeps a
  /// reference to `manifest`.
  /// Throws Error for
  /// - an unknown argument;
  /// - a value that is no number;
  /// - an argument without a value, or one that only a program can make.
  CallValues(const source::Manifest& manifest, const source::Resolved& resolved,
             const toolchain::DeviceFacts& device, const GivenArguments& given,
             const std::vector<compile::ExportFact>& exports);

  const std::vector<std::int64_t>& slots() const noexcept { return slots_; }
  /// Value of an f32 or f64 argument.
  double number_of(std::size_t argument) const { return floats_[argument]; }
  /// {"rows", "64"}, {"eps", "1e-06"}, ...: scalar arguments first, then run-time values.
  std::vector<Parameter> texts() const;

 private:
  void set_integer(std::size_t slot, std::int64_t value) { slots_[slot] = value, known_[slot] = true; }
  void resolve_arguments(const GivenArguments& given);
  void resolve_integer(const std::string& name, std::size_t slot, const source::Expression& value,
                       const GivenArguments& given);
  /// The scalar values by name: arguments, run-time values, and values of [work_list.run].
  std::vector<std::pair<std::string, std::size_t>> named_slots() const;

  const source::Manifest& manifest_;
  std::vector<std::int64_t> slots_;
  std::vector<bool> known_;     // by slot
  std::vector<double> floats_;  // by argument
};

}  // namespace kiln::cli
