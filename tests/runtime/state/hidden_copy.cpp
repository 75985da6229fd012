#include "runtime/state/hidden_copy.h"

#include "kiln/error.hpp"
#include "runtime/service/service.hpp"
#include "runtime/state/process_seal.hpp"

kiln_status kiln_hidden_copy_compile(const char* cache_dir, const char* cuda_home, const char* manifest,
                                     const char* source, int n) try {
  kiln::Options o = kiln::Options::hermetic();
  o.cache_dir = cache_dir, o.cuda_home = cuda_home;
  o.worker = KILN_BINARY_DIR "/kiln-worker";
  kiln::runtime::Service service(o);
  const auto origin = service.add({manifest, source, {}});
  service.open(origin->manifest.name, KILN_DEVICE_NONE, "sm_90a").compile(std::vector{kiln::Value(n)});
  return KILN_OK;
} catch (const kiln::Error& error) {
  return static_cast<kiln_status>(error.code());
}

void kiln_hidden_copy_seal_process(void) { kiln::runtime::seal_process(); }
