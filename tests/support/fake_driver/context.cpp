// Contexts: primary contexts, contexts that the caller makes, each thread's
// stack of contexts, and destroyed contexts.
//
// The documentation of cuCtxDestroy says: a context that is current to the calling thread is popped. To other
// threads it stays current, and their calls return CUDA_ERROR_CONTEXT_IS_DESTROYED.
// An id (cuCtxGetId) is never used twice. An address is used again where kiln_fake_reuse_context_address says
// so; the real driver may do it at any time.
#include "tests/support/fake_driver/world.hpp"

namespace kiln::fake {
namespace {

/// A context as a thread holds it. The id tells a destroyed context from a later one at the same address.
struct Held {
  CUctx_st* context = nullptr;
  unsigned long long id = 0;
};

std::vector<Held>& stack() {
  thread_local std::vector<Held> contexts;
  return contexts;
}

bool is_live(const World& w, CUctx_st* context) { return w.contexts.count(context) != 0; }

CUctx_st* make(World& w, int device, bool primary) {
  std::unique_ptr<CUctx_st> made;
  if (w.reuse_context_address && !w.destroyed_contexts.empty()) {
    made = std::move(w.destroyed_contexts.back());
    w.destroyed_contexts.pop_back();
  } else {
    made = std::make_unique<CUctx_st>();
  }
  *made = {device, primary, 0, ++w.last_context_id};
  CUctx_st* context = made.get();
  w.contexts.emplace(context, std::move(made));
  return context;
}

void destroy(World& w, CUctx_st* context) {
  std::erase_if(w.streams, [&](const auto& entry) { return entry.second->context == context; });
  for (auto& [handle, kernel] : w.kernels) {
    const auto found = kernel->functions.find(context);
    if (found == kernel->functions.end()) continue;
    w.functions.erase(found->second);
    kernel->functions.erase(found);
  }
  const auto it = w.contexts.find(context);
  w.destroyed_contexts.push_back(std::move(it->second));  // keeps the address from malloc
  w.contexts.erase(it);
}

CUctx_st* primary_of(World& w, int device) {
  for (const auto& [context, owner] : w.contexts)
    if (owner->primary && owner->device == device) return context;
  return nullptr;
}

}  // namespace

CUctx_st* current_context() { return stack().empty() ? nullptr : stack().back().context; }

CUresult context_state(const World& w) {
  if (stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto it = w.contexts.find(stack().back().context);
  return it != w.contexts.end() && it->second->id == stack().back().id ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void forget_current() { stack().clear(); }

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  KILN_FAKE_ENTER(cuDevicePrimaryCtxRetain);
  if (device < 0 || device >= w.devices) return CUDA_ERROR_INVALID_DEVICE;
  CUctx_st* primary = primary_of(w, device);
  if (!primary) primary = make(w, device, true);
  ++primary->references;
  *context = primary;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  KILN_FAKE_ENTER(cuDevicePrimaryCtxRelease);
  CUctx_st* primary = primary_of(w, device);
  if (!primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary->references == 0) destroy(w, primary);
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext* context, unsigned, CUdevice device) {
  KILN_FAKE_ENTER(cuCtxCreate);
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  if (device < 0 || device >= w.devices) return CUDA_ERROR_INVALID_DEVICE;
  *context = make(w, device, false);
  stack().push_back({*context, (*context)->id});
  return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext context) {
  KILN_FAKE_ENTER(cuCtxDestroy);
  if (!is_live(w, context) || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  if (current_context() == context) stack().pop_back();
  destroy(w, context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  KILN_FAKE_ENTER(cuCtxPushCurrent);
  if (!is_live(w, context)) return CUDA_ERROR_INVALID_CONTEXT;
  stack().push_back({context, context->id});
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  KILN_FAKE_ENTER(cuCtxPopCurrent);
  if (stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context) *context = current_context();
  stack().pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  KILN_FAKE_ENTER(cuCtxGetCurrent);
  *context = current_context();
  return CUDA_SUCCESS;
}

/// Replaces the top of the stack; null pops it.
CUresult cuCtxSetCurrent(CUcontext context) {
  KILN_FAKE_ENTER(cuCtxSetCurrent);
  if (context && !is_live(w, context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!stack().empty()) stack().pop_back();
  if (context) stack().push_back({context, context->id});
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  KILN_FAKE_ENTER(cuCtxGetId);
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  if (!context) {
    if (const auto bad = context_state(w)) return bad;
    context = current_context();
  }
  if (!is_live(w, context)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  KILN_FAKE_ENTER(cuCtxGetDevice);
  if (const auto bad = context_state(w)) return bad;
  *device = current_context()->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  KILN_FAKE_ENTER(cuCtxSynchronize);
  return context_state(w);
}

}  // namespace kiln::fake
