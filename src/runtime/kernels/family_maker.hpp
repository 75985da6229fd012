// Makes all members of a family ready, and the handle over them.
#pragma once

#include <span>
#include <vector>

#include "runtime/kernels/behind.hpp"
#include "runtime/kernels/family.hpp"

namespace kiln::runtime {

/// Thread-safe.
class FamilyMaker {
 public:
  /// All arguments must outlive it.
  FamilyMaker(KernelMaker& maker, BehindMaker& behind, const std::shared_ptr<const source::Template>& origin,
              KernelTables& tables)
      : maker_(maker), behind_(behind), origin_(origin), tables_(tables) {}

  /// The family for `values`, which leave out the family's parameter. Members that are not ready are made at the same
  /// time. Calls whose members are the same get the same family. Throws CompileError and Error: not_ready names every
  /// member that a seal or a capture refuses.
  const KernelFamily& get(std::span<const Value> values, const GetRequest& request, const KeepAlive& keep);

 private:
  struct Member {
    Wanted wanted;
    const LoadedKernel* kernel = nullptr;  ///< null: not ready yet
    KernelFuture making{};
  };
  /// A member that is not ready, and why.
  struct Refusal {
    const Member* member;
    std::string why;
  };

  const source::FamilySpec& spec() const;
  std::vector<Member> members_of(std::span<const Value> values, const GetRequest& request);
  void admit(const std::vector<Member>& members, const GetRequest& request);
  void make(std::vector<Member>& members, const GetRequest& request, const KeepAlive& keep);
  [[noreturn]] void refuse(const std::vector<Refusal>& refusals, std::size_t members) const;
  const KernelFamily& keep_family(const std::vector<Member>& members);

  KernelMaker& maker_;
  BehindMaker& behind_;
  const std::shared_ptr<const source::Template>& origin_;
  KernelTables& tables_;
};

}  // namespace kiln::runtime
