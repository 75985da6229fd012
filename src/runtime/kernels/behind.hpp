// What is made behind callers' backs: get_async, prefetch, the specialised kernels of fallbacks.
#pragma once

#include "runtime/kernels/maker.hpp"

namespace kiln::runtime {

/// Thread-safe.
class BehindMaker {
 public:
  /// All must outlive it.
  BehindMaker(KernelMaker& maker, const Target& target, KernelTables& tables)
      : maker_(maker), target_(target), tables_(tables) {}

  /// Makes what is wanted on a thread of kiln's own. Where it is undecided, the stores are asked there.
  KernelFuture begin(Wanted wanted, const GetRequest& request, const KeepAlive& keep);
  /// Makes it ahead of need, one at a time for each specialisation. Its failure is remembered by the path,
  /// and told as an event.
  void make(const Wanted& wanted, const KeepAlive& keep);

 private:
  const LoadedKernel& decide_and_make(const Wanted& undecided, const GetRequest& request,
                                      const KeepAlive& keep);
  void make_here(const Wanted& undecided, const GetRequest& request, const KeepAlive& keep);
  void tell_pending(const Wanted& undecided, const Wanted& decided, const GetRequest& request);

  KernelMaker& maker_;
  const Target& target_;
  KernelTables& tables_;
};

}  // namespace kiln::runtime
