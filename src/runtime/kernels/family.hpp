// The loaded members of a family: one handle whose launches pick a member by the value of an argument.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "manifest/family/family.hpp"
#include "runtime/launch/given_integer.hpp"
#include "runtime/launch/loaded_kernel.hpp"

namespace kiln::runtime {

/// Thread-safe. A launch takes no lock and allocates nothing to pick its member.
class KernelFamily {
 public:
  /// `spec` and the kernels must outlive it. REQUIRES: a kernel for each edge, in order.
  KernelFamily(const source::FamilySpec& spec, std::span<const LoadedKernel* const> members)
      : spec_(spec), members_(new std::atomic<const LoadedKernel*>[members.size()]) {
    for (std::size_t i = 0; i < members.size(); ++i) members_[i].store(members[i], std::memory_order_relaxed);
  }

  const source::FamilySpec& spec() const noexcept { return spec_; }
  /// The member that serves `value` of the argument.
  const LoadedKernel& member(std::int64_t value) const noexcept {
    return *members_[spec_.edges.of(value)].load(std::memory_order_acquire);
  }
  /// The member of a launch with these arguments. The first one where the argument is missing or no integer, which a
  /// launch of that member refuses.
  const LoadedKernel& member_for(const kiln_arg_type* types, const void* const* data,
                                 std::size_t count) const noexcept {
    const auto by = static_cast<std::size_t>(spec_.by);
    if (by >= count || !is_given_integer(types[by])) [[unlikely]]
      return member(0);
    const std::int64_t value = read_given_integer(types[by], data[by]);
    const bool huge = types[by].kind == KILN_ARG_UNSIGNED && value < 0;
    return member(huge ? INT64_MAX : value);
  }

  bool has(std::span<const LoadedKernel* const> members) const noexcept {
    return std::equal(members.begin(), members.end(), members_.get(),
                      [](const auto* a, const auto& b) { return a == b.load(std::memory_order_relaxed); });
  }
  /// Lets later launches pick `better` where they would pick `old`, which must stay loaded. REQUIRES: no other writer.
  void replace(const LoadedKernel* old, const LoadedKernel* better) noexcept {
    for (std::size_t i = 0; i < spec_.edges.size(); ++i)
      if (members_[i].load(std::memory_order_relaxed) == old)
        members_[i].store(better, std::memory_order_release);
  }

 private:
  const source::FamilySpec& spec_;
  const std::unique_ptr<std::atomic<const LoadedKernel*>[]> members_;
};

}  // namespace kiln::runtime
