#include "cache/fleet/net/tls_files.hpp"

namespace kiln::fleet {

std::shared_ptr<const TlsContext> TlsFilesInUse::context(std::string& why) {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  if (!state.context) state.context = TlsContext::make(files_, why);
  return state.context;
}

void TlsFilesInUse::forget() {
  State& state = state_.get();
  const std::lock_guard lock(state.mutex);
  state.context.reset();
}

}  // namespace kiln::fleet
