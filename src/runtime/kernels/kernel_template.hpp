// A template bound to a device and context: from a caller's values to a ready kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "runtime/kernels/behind.hpp"

namespace kiln::runtime {

struct KernelTemplateProbe;

/// Thread-safe. Owned by a Scope; work behind callers' backs keeps it alive until it has ended.
class KernelTemplate : public std::enable_shared_from_this<KernelTemplate> {
 public:
  KernelTemplate(Core& core, std::shared_ptr<const source::Template> origin, Target target);
  ~KernelTemplate();

  /// Step 1 of the path: the ready kernel or null. No lock, no allocation, no call of system or driver.
  const LoadedKernel* find(const char* const* names, const kiln_value* values,
                           std::size_t count) const noexcept {
    return packing_.find(tables_.ready, names, values, count);
  }
  /// The same for up to four numbers of the parameters' own kinds, null for everything else; no call at all.
  [[gnu::always_inline]] const LoadedKernel* find_plain(const char* const* names, const kiln_value* values,
                                                        std::size_t count) const noexcept {
    return packing_.find_plain(tables_.ready, names, values, count);
  }
  /// Throws CompileError and Error.
  const LoadedKernel& get(std::span<const Value> values, const GetRequest& request);
  /// On a thread of the service's; throws at once what get would throw before it looks for the image.
  KernelFuture get_async(std::span<const Value> values, const GetRequest& request);
  /// get, on a thread of kiln's own, with the template's context. How the kernel came, nothing when it was
  /// ready: the kernel itself may go with a release as soon as this has returned.
  std::optional<Outcome> get_on_own_thread(std::span<const Value> values, GetRequest request);
  void prefetch(std::span<const Value> values);
  /// The image only.
  Obtained compile(std::span<const Value> values, const GetRequest& request = {});

  /// The kernel that get_or_fallback has settled on, or null.
  const LoadedKernel* find_chosen(const char* const* names, const kiln_value* values,
                                  std::size_t count) const noexcept {
    return packing_.find(tables_.chosen, names, values, count);
  }
  [[gnu::always_inline]] const LoadedKernel* find_chosen_plain(const char* const* names,
                                                               const kiln_value* values,
                                                               std::size_t count) const noexcept {
    return packing_.find_plain(tables_.chosen, names, values, count);
  }
  const LoadedKernel& get_or_fallback(std::span<const Value> values, const GetRequest& request);
  /// Specialised kernels that are ready take the place of their fallbacks. How many did.
  std::uint64_t adopt();
  /// Throws Error(manifest) when `generic` takes other arguments, or parameters that cannot be told it.
  /// Called before anybody has the template, or by one thread at a time with the same generic template.
  void set_fallback(std::shared_ptr<KernelTemplate> generic);
  /// REQUIRES: as set_fallback, or that open() has returned the template.
  bool has_fallback() const noexcept { return !generic_.expired(); }

  /// Forgets and unloads what is loaded, and drops what is being made behind callers' backs. REQUIRES: no
  /// reader.
  void release();
  /// Counts releases.
  std::uint64_t epoch() { return maker_.epoch(); }
  /// Adds a line for each kernel that is loaded (specialisation, arch, digests of manifest and image), and
  /// for each specialisation that runs its fallback.
  void describe_loaded(std::set<std::string>& out);

  /// What `get` would ask for: the specialisation, and which of its values were tuned. Throws as get does.
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
