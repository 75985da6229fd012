// A small NVTX tool in Nsight's place, loaded through NVTX_INJECTION64_PATH. For each call it appends a
// line to the file that KILN_NVTX_FILE names.
// A line is the thread's id and "domain NAME", "push NAME of DOMAIN" or "pop of DOMAIN".
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

namespace {

void say(const std::string& text) {
  const char* file = std::getenv("KILN_NVTX_FILE");
  const int fd = file ? ::open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  const std::string line = std::to_string(::syscall(SYS_gettid)) + ' ' + text + '\n';
  if (fd < 0 || ::write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::abort();
  ::close(fd);
}

// The string is never freed: a handle is valid for the life of the process.
const std::string& name_of(nvtxDomainHandle_t domain) { return *reinterpret_cast<std::string*>(domain); }

nvtxDomainHandle_t NVTX_API create(const char* name) {
  say(std::string("domain ") + name);
  return reinterpret_cast<nvtxDomainHandle_t>(new std::string(name));
}

int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  const bool sound = event->version == NVTX_VERSION && event->size == NVTX_EVENT_ATTRIB_STRUCT_SIZE &&
                     event->messageType == NVTX_MESSAGE_TYPE_ASCII;
  say("push " + std::string(sound ? event->message.ascii : "?") + " of " + name_of(domain));
  return 0;
}

int NVTX_API pop(nvtxDomainHandle_t domain) {
  say("pop of " + name_of(domain));
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
      size <= NVTX_CBID_CORE2_DomainCreateA)
    return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
