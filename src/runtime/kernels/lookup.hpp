// Step 1 of the path: a look into one of a template's tables of ready kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kiln/kiln.h"
#include "runtime/kernels/packing.hpp"
#include "runtime/kernels/ready_table.hpp"

namespace kiln::runtime {

/// Refers to a template, which must outlive it. Thread-safe. Takes no lock, allocates nothing, calls neither system
/// nor driver. All its functions but `find` and `find_packed` call nothing at all.
class KernelLookup {
 public:
  [[gnu::always_inline]] KernelLookup(const ParameterPacking& packing, const ReadyTable& table) noexcept
      : packing_(packing), table_(table) {}

  /// The kernel for values of any kind, in order or by name; null when there is none.
  const LoadedKernel* find(const char* const* names, const kiln_value* values,
                           std::size_t count) const noexcept {
    return packing_.find(table_, names, values, count);
  }
  /// As find, for up to four numbers of the parameters' own kinds; null for everything else.
  [[gnu::always_inline]] const LoadedKernel* find_plain(const char* const* names, const kiln_value* values,
                                                        std::size_t count) const noexcept {
    return packing_.find_plain(table_, names, values, count);
  }
  /// As find, for packed parameters.
  const LoadedKernel* find_packed(const PackedParameters& parameters) const noexcept {
    return table_.find(parameters);
  }
  /// Says whether a kernel that find_packed has returned is still the one that it would return: the number is the
  /// same then.
  std::uint64_t changes() const noexcept { return table_.changes(); }

 private:
  const ParameterPacking& packing_;
  const ReadyTable& table_;
};

}  // namespace kiln::runtime
