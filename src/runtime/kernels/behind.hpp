// Makes kernels in the background: for get_async and prefetch, and the specialised kernels of fallbacks.
#pragma once

#include "runtime/kernels/maker.hpp"

namespace kiln::runtime {

/// Thread-safe.
class BehindMaker {
 public:
  /// All arguments must outlive it.
  BehindMaker(KernelMaker& maker, const Target& target, KernelTables& tables)
      : maker_(maker), target_(target), tables_(tables) {}

  /// Makes the wanted kernel on a thread of kiln's own. When its tuned choice is undecided, that thread asks
  /// the stores.
  KernelFuture begin(Wanted wanted, const GetRequest& request, const KeepAlive& keep);
  /// Makes a kernel ahead of need, once at a time for each specialisation. The path remembers a failure, and
  /// an event reports it.
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
