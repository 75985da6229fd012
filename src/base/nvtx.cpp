#include "base/nvtx.hpp"

#include "base/process.hpp"

#ifdef KILN_NVTX
#define NVTX_AS_SYSTEM_HEADER
#define NVTX_SUPPORT_STATIC_INJECTION_LIBRARY 0  // it is a weak symbol that engines would see
#include <nvtx3/nvToolsExt.h>
#endif

namespace kiln::base {

#ifdef KILN_NVTX

namespace {

// The thread that asks the tool writes both, before `tool_` becomes `listens`.
constinit nvtxDomainHandle_t g_domain = nullptr;
constinit std::uint64_t g_asked_by = 0;  // the process generation

}  // namespace

constinit std::atomic<NvtxRange::Tool> NvtxRange::tool_{Tool::not_asked};

bool NvtxRange::is_built() noexcept { return true; }

/// The first range of the process loads the tool. Other threads do not wait for that: their ranges
/// are empty meanwhile. A child forked in the middle of the loading makes no ranges at all; NVTX
/// itself would spin there.
bool NvtxRange::ask() noexcept {
  Tool before = Tool::not_asked;
  if (!tool_.compare_exchange_strong(before, Tool::being_asked, std::memory_order_acquire))
    return before == Tool::listens;
  g_asked_by = process_generation();
  g_domain = nvtxDomainCreateA("kiln");
  tool_.store(g_domain ? Tool::listens : Tool::absent, std::memory_order_release);
  return g_domain != nullptr;
}

void NvtxRange::push(const std::string& name) noexcept {
  const std::uint64_t here = process_generation();
  if (here != g_asked_by) return;
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = name.c_str();
  nvtxDomainRangePushEx(g_domain, &event);
  generation_ = here;
}

void NvtxRange::pop() noexcept {
  if (generation_ == process_generation()) nvtxDomainRangePop(g_domain);
}

#else

constinit std::atomic<NvtxRange::Tool> NvtxRange::tool_{Tool::absent};
bool NvtxRange::is_built() noexcept { return false; }
bool NvtxRange::ask() noexcept { return false; }
void NvtxRange::push(const std::string&) noexcept {}
void NvtxRange::pop() noexcept {}

#endif

}  // namespace kiln::base
