// The service behind kiln_service: catalog, pipeline, opened templates, mode.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "runtime/kernel_template.hpp"
#include "runtime/recorder.hpp"
#include "source/catalog.hpp"

namespace kiln::runtime {

class Service {
 public:
  explicit Service(const Options& options, const std::string& memo_file = default_memo_file());
  ~Service();

  /// KILN_DEVICE_CURRENT, KILN_DEVICE_NONE or an ordinal; the same template for the same context every time.
  KernelTemplate& open(const std::string& name, int device, const std::string& arch);
  std::shared_ptr<const source::Template> add(const source::MemoryTemplate& in) { return catalog_.add(in); }

  void seal();
  bool may_compile() const noexcept { return mode_ != Mode::sealed; }
  /// Writes down what was asked for and was not ready (KILN_RECORD).
  void record(const source::Template& origin, const source::Resolved& resolved) noexcept {
    recorder_.record(origin, resolved);
  }
  /// Throws Error(not_ready) with the plan line when this service is sealed.
  void refuse_when_sealed(const Specialization& specialization);

  Pipeline& pipeline() noexcept { return pipeline_; }
  source::Catalog& catalog() noexcept { return catalog_; }
  const Config& config() const noexcept { return config_; }
  /// The arch for work without a device: `arch`, else the configured one, else sm_90a.
  base::Arch default_arch(const std::string& arch) const;

 private:
  Target bind(int device, const std::string& arch) const;

  const Config config_;
  const Mode mode_;
  std::atomic<bool> sealed_{false};
  source::Catalog catalog_;
  Recorder recorder_;
  Pipeline pipeline_;
  std::mutex mutex_;
  std::map<std::tuple<std::string, toolchain::CUcontext, int>,
           std::pair<std::shared_ptr<const source::Template>, KernelTemplate*>>
      opened_;
  std::vector<std::unique_ptr<KernelTemplate>>
      templates_;  // an edited manifest opens anew; the old one's kernels stay
};

}  // namespace kiln::runtime
