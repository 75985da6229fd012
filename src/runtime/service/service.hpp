// The service behind kiln_service: a core, the catalog of templates, and the scopes of their kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/blob/blob_space.hpp"
#include "runtime/kernels/scope.hpp"
#include "runtime/operator/operators.hpp"
#include "runtime/service/fingerprint.hpp"

namespace kiln::runtime {

/// Thread-safe.
class Service {
 public:
  /// `work_lists`: the kinds that manifests may name. The library's entry gives the kinds of all operators.
  explicit Service(const Options& options, const std::string& memo_file = default_memo_file(),
                   Events events = {}, source::WorkListKinds work_lists = {});
  /// Ends the compiles that it started, and waits for them and for the work in the background.
  ~Service() { core_.stop(); }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Opens a template in the service's own scope.
  KernelTemplate& open(const std::string& name, int device, const std::string& arch) {
    return own_.open(name, device, arch);
  }
  std::shared_ptr<const source::Template> add(const source::MemoryTemplate& in) { return catalog_.add(in); }
  /// As source::Catalog::add_path.
  void add_path(const std::string& path) { catalog_.add_path(path); }
  void seal() { core_.misses().seal(); }
  std::uint64_t adopt();
  /// The faults of kernels that are loaded in all scopes, since the last call. Throws Error(driver).
  std::vector<KernelFault> device_faults();
  /// The kernels that are loaded in all scopes, and the blobs that this process has read or stored.
  Used used();

  Core& core() noexcept { return core_; }
  ServiceState& state() noexcept { return core_.state(); }
  Path& path() noexcept { return core_.path(); }
  const Config& config() const noexcept { return core_.config(); }
  source::Catalog& catalog() noexcept { return catalog_; }
  Scopes& scopes() noexcept { return scopes_; }
  Scope& own_scope() noexcept { return own_; }
  Operators& operators() noexcept { return operators_; }
  BlobSpaces& blobs() noexcept { return blobs_; }

 private:
  Core core_;
  source::Catalog catalog_;
  Scopes scopes_;
  Scope own_;  // destroyed before the rest: kernels are unloaded while all else is there
  Operators operators_;
  BlobSpaces blobs_{core_};
};

}  // namespace kiln::runtime
