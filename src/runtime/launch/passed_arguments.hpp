// The arguments that a kernel is passed, where they are not just the call's: tensor maps and constants among them,
// arguments of the call left out, another order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/launch/kernel_description.hpp"
#include "runtime/launch/tensor_map_cache.hpp"

namespace kiln::runtime {

/// Thread-safe.
class PassedArguments {
 public:
  /// Throws Error(requirement) for a tensor map that does not fit into its struct.
  PassedArguments(const KernelDescription& kernel, const toolchain::Driver& driver);

  /// Makes the tensor maps, and sets out.passed. REQUIRES: the call's arguments were taken. Throws Error: requirement for
  /// a map that cannot be and a constant that does not fit, driver for one that the driver refuses.
  void lay_out(PreparedLaunch& out) const {
    out.passed = out.parameters.data();
    if (!kernel_.recipe.passes_the_call()) replace(out);
  }

 private:
  /// A struct of the call that holds tensor maps. The kernel gets a copy of it.
  struct Struct {
    std::size_t argument, bytes, at;  ///< `at`: its place among the copies
    struct Held {
      std::size_t map, offset;
    };
    std::vector<Held> held;
  };

  void replace(PreparedLaunch& out) const;
  void make_map(std::size_t i, PreparedLaunch& out) const;
  void copy_structs(PreparedLaunch& out) const;
  void* constant(std::size_t i, PreparedLaunch& out) const;

  const KernelDescription& kernel_;
  const toolchain::Driver& driver_;
  std::vector<std::unique_ptr<TensorMapCache>> caches_;  ///< one for each map of the recipe
  std::vector<Struct> structs_;
  std::size_t struct_bytes_ = 0;
  /// The source of each argument of the kernel, and its place there.
  struct Source {
    enum class From { call, map, copied_struct, constant } from;
    std::size_t at;
  };
  std::vector<Source> sources_;
};

}  // namespace kiln::runtime
