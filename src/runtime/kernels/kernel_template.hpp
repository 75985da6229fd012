// A template bound to a device and context: from a caller's values to a ready kernel.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "runtime/kernels/family_maker.hpp"
#include "runtime/kernels/lookup.hpp"

namespace kiln::runtime {

struct KernelTemplateProbe;

/// Thread-safe. A Scope owns it, and work in the background keeps it alive until the work has ended.
class KernelTemplate : public std::enable_shared_from_this<KernelTemplate> {
 public:
  KernelTemplate(Core& core, std::shared_ptr<const source::Template> origin, Target target);
  ~KernelTemplate();

  /// Step 1 of the path: kernels that are ready.
  [[gnu::always_inline]] KernelLookup ready() const noexcept { return {packing_, tables_.ready}; }
  /// Kernels that get_or_fallback has settled on.
  [[gnu::always_inline]] KernelLookup chosen() const noexcept { return {packing_, tables_.chosen}; }
  /// The kernel for `values`, which is made if it is not ready. Throws CompileError and Error.
  const LoadedKernel& get(std::span<const Value> values, const GetRequest& request);
  /// As get, on a thread of the service. Errors that get throws before it looks for the image are
  /// thrown at once.
  KernelFuture get_async(std::span<const Value> values, const GetRequest& request);
  /// Runs get on the current thread, which is kiln's own, in the template's context. Returns how the kernel
  /// came, or nothing when it was ready. It returns no kernel, because a release may unload the
  /// kernel at once.
  std::optional<Outcome> get_on_own_thread(std::span<const Value> values, GetRequest request);
  /// As FamilyMaker::get.
  const KernelFamily& get_family(std::span<const Value> values, const GetRequest& request);
  void prefetch(std::span<const Value> values);
  /// Obtains only the image.
  Obtained compile(std::span<const Value> values, const GetRequest& request = {});

  const LoadedKernel& get_or_fallback(std::span<const Value> values, const GetRequest& request);
  /// Puts specialised kernels that are ready in the place of their fallbacks, and kernels of the device's own
  /// arch in the place of those from images of other archs. Returns their number.
  std::uint64_t adopt();
  /// Replaces the generic template's kernels that get_or_fallback has settled on, as far as the generic template
  /// has replaced them. Called after all templates have adopted.
  void follow_generic();
  /// Throws Error(manifest) as check_fallback. REQUIRES: nobody has the template yet, or calls come from one
  /// thread at a time with the same generic template.
  void set_fallback(const std::shared_ptr<KernelTemplate>& generic);
  /// REQUIRES: as set_fallback, or open() has returned the template.
  bool has_fallback() const noexcept { return !generic_.expired(); }

  /// Unloads what is loaded, and drops what is being made in the background. REQUIRES: no reader.
  void release();
  /// The number of releases so far.
  std::uint64_t epoch() { return maker_.epoch(); }
  /// Adds the digests of each kernel that is loaded, by its specialisation and arch, and the specialisations that
  /// run their fallback.
  void describe_loaded(std::map<std::string, std::set<std::string>>& out);

  /// Adds the faults of loaded kernels since the last call. Throws Error(driver).
  void take_faults(std::vector<KernelFault>& out);

  /// The specialisation that `get` would ask for, and the values of it that were tuned. Throws as get does.
  TunedCall resolve(std::span<const Value> values, const GetRequest& request = {},
                    source::Archs archs = source::Archs::supported) const {
    return maker_.calls().resolve(values, request, archs, Disk::asked);
  }

  const source::Template& origin() const noexcept { return *origin_; }
  const std::shared_ptr<const source::Template>& shared_origin() const noexcept { return origin_; }
  const Target& target() const noexcept { return target_; }

 private:
  friend struct KernelTemplateProbe;

  const std::shared_ptr<const source::Template> origin_;
  const Target target_;
  const ParameterPacking packing_;
  KernelTables tables_;
  FallbackChoices fallbacks_;
  KernelMaker maker_;
  BehindMaker behind_;
  std::weak_ptr<KernelTemplate> generic_;  ///< the fallback, of the same scope; empty: none
};

}  // namespace kiln::runtime
