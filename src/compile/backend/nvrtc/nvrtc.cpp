#include "compile/backend/nvrtc/nvrtc.hpp"

#include "base/process.hpp"
#include "compile/backend/nvrtc/log.hpp"
#include "compile/backend/nvrtc/program.hpp"
#include "toolchain/nvrtc.hpp"

namespace kiln::compile {
namespace {

class NvrtcBackend final : public Backend {
 public:
  void open(const toolchain::CompilerLibraries& libraries) const override {
    toolchain::Nvrtc::load(libraries.library, libraries.builtins);
  }
  WorkerResponse run(const WorkerRequest& request, WorkingDirectory whose) const noexcept override {
    return run_nvrtc(request, whose);
  }
  PtxasReport ptxas_report(std::string_view log, std::string_view lowered_name) const override {
    return read_ptxas_report(log, lowered_name);
  }
  std::string diagnostics(std::string_view log) const override { return diagnostics_of(log); }
  bool refuses_trace(const WorkerResponse& response) const noexcept override {
    return compile::refuses_trace(response);
  }
};

constinit base::ProcessWide<NvrtcBackend> g_backend;

}  // namespace

const Backend& nvrtc_backend() noexcept { return g_backend.get(); }

}  // namespace kiln::compile
