// The arguments of a launch. They are checked against manifest and recorded layout, converted where their
// types are not the declared ones, and given to the expressions. An argument that needs no conversion is not
// copied: the driver reads it from the caller's memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "kiln/kiln.h"
#include "runtime/launch/passed_arguments.hpp"

namespace kiln::runtime {

/// Thread-safe.
class LaunchArguments {
 public:
  /// Throws as PassedArguments does.
  LaunchArguments(const KernelDescription& kernel, const toolchain::Driver& driver)
      : kernel_(kernel), passed_(kernel, driver) {}
  ~LaunchArguments();
  LaunchArguments(const LaunchArguments&) = delete;
  LaunchArguments& operator=(const LaunchArguments&) = delete;

  /// Fills parameters, storage and slots. Throws Error: invalid_argument for the arguments themselves,
  /// requirement for [[require]] and alignment.
  void take(const kiln_arg_type* types, const void* const* data, std::size_t count,
            PreparedLaunch& out) const;
  /// Sets what the driver gets. REQUIRES: take() was called. Throws as PassedArguments::lay_out does.
  void pass(PreparedLaunch& out) const { passed_.lay_out(out); }

 private:
  struct CheckedTypes;

  std::uint64_t check_types(const kiln_arg_type* types, std::size_t count) const;
  std::uint64_t check_new_types(const kiln_arg_type* types, std::size_t count) const;
  void check_count(std::size_t count) const;
  std::uint64_t checked_conversions(const kiln_arg_type* types, std::size_t count) const;
  void convert(std::size_t index, kiln_arg_type type, const void* data, PreparedLaunch& out) const;
  std::int64_t integer_of(std::size_t index, source::ArgumentType::Kind kind, kiln_arg_type type,
                          const void* data) const;
  [[noreturn]] void fail_to_fit(std::size_t index, kiln_arg_type type, std::int64_t value) const;
  [[noreturn]] void fail_to_fit(std::size_t index, double value) const;
  void compute_omitted(std::size_t given, PreparedLaunch& out) const;
  void check_values(const PreparedLaunch& out) const;
  void check_alignment(const LaunchRecipe::Alignment& alignment, std::uint64_t address,
                       const PreparedLaunch& out) const;
  [[noreturn]] void fail_requirement(const source::Requirement& broken, const PreparedLaunch& out) const;

  const KernelDescription& kernel_;
  const PassedArguments passed_;
  /// Lists of types that passed the check. Further lists are checked at every launch.
  mutable std::array<std::atomic<const CheckedTypes*>, 8> checked_{};
};

}  // namespace kiln::runtime
