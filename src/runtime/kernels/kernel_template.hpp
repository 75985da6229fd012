// A template bound to a device and context: from a caller's values to a ready kernel.
#pragma once

#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/process.hpp"
#include "runtime/kernels/ready_table.hpp"
#include "runtime/launch/loaded_kernel.hpp"
#include "runtime/tuned/tuned_call.hpp"

namespace kiln::runtime {

class Service;
struct KernelTemplateProbe;

/// What a template's kernels are for. Without a driver: compile only.
struct Target {
  const toolchain::Driver* driver = nullptr;
  toolchain::CUcontext context = nullptr;
  std::uint64_t context_id = 0;  ///< tells contexts of one address apart; 0: the driver cannot say
  toolchain::DeviceFacts device;
  base::Arch arch;

  /// Throws Error(driver) when the context was destroyed. A driver takes such a handle in cuCtxSetCurrent and
  /// crashes later (580); asked for its id it says so.
  void check_context(const std::string& doing) const;
};

struct GetRequest {
  base::Deadline deadline = base::Deadline::never();
  std::optional<toolchain::CUstream> stream;
  source::Which which = source::Which::kernel;
  compile::Urgency urgency = compile::Urgency::caller;
  bool may_compile = true;  ///< false: memory and disk only, whatever the mode; past the seal the tier, too
  bool past_seal = false;   ///< the explicit exception (prepare): neither mode nor seal holds it
  bool own_thread = false;  ///< on one of kiln's, which may be held up in the driver
  /// KernelTemplate::epoch() when it was asked for: a release since then drops it. None: the present one.
  std::optional<std::uint64_t> epoch{};
};

using KernelFuture = std::shared_future<const LoadedKernel*>;

/// Thread-safe. Owned by a Scope; work behind callers' backs keeps it alive until it has ended.
class KernelTemplate : public std::enable_shared_from_this<KernelTemplate> {
 public:
  KernelTemplate(Service& service, std::shared_ptr<const source::Template> origin, Target target);
  ~KernelTemplate();

  /// Step 1 of the path: the ready kernel or null. No lock, no allocation, no call of system or driver.
  const LoadedKernel* find(const char* const* names, const kiln_value* values,
                           std::size_t count) const noexcept {
    return find_with_care(ready_, names, values, count);
  }
  /// The same for up to four numbers of the parameters' own kinds, null for everything else; no call at all.
  [[gnu::always_inline]] const LoadedKernel* find_plain(const char* const* names, const kiln_value* values,
                                                        std::size_t count) const noexcept {
    return find_plain_in(ready_, names, values, count);
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
    return find_with_care(chosen_, names, values, count);
  }
  [[gnu::always_inline]] const LoadedKernel* find_chosen_plain(const char* const* names,
                                                               const kiln_value* values,
                                                               std::size_t count) const noexcept {
    return find_plain_in(chosen_, names, values, count);
  }
  const LoadedKernel& get_or_fallback(std::span<const Value> values, const GetRequest& request);
  /// Specialised kernels that are ready take the place of their fallbacks. How many did.
  std::uint64_t adopt();
  /// Throws Error(manifest) when `generic` takes other arguments, or parameters that cannot be told it.
  /// Called before anybody has the template, or by one thread at a time with the same generic template.
  void set_fallback(std::shared_ptr<KernelTemplate> generic);
  /// REQUIRES: as set_fallback, or that open() has returned the template.
  bool has_fallback() const noexcept { return !fallback_.expired(); }

  /// Forgets and unloads what is loaded, and drops what is being made behind callers' backs. REQUIRES: no
  /// reader.
  void release();
  /// Counts releases.
  std::uint64_t epoch();
  /// Adds a line for each kernel that is loaded (specialisation, arch, digests of manifest and image), and
  /// for each specialisation that runs its fallback.
  void describe_loaded(std::set<std::string>& out);

  /// What `get` would ask for: the specialisation, and which of its values were tuned. Throws as get does.
  TunedCall resolve(std::span<const Value> values, const GetRequest& request = {},
                    source::Archs archs = source::Archs::supported) const;

  const source::Template& origin() const noexcept { return *origin_; }
  const std::shared_ptr<const source::Template>& shared_origin() const noexcept { return origin_; }
  const Target& target() const noexcept { return target_; }

 private:
  friend struct KernelTemplateProbe;
  /// What a caller wants, checked.
  struct Wanted {
    source::Resolved resolved;
    PackedParameters exact;                 ///< every parameter, resolved
    std::optional<PackedParameters> given;  ///< as the caller said it, when that can be packed
    std::string undecided;  ///< as TunedCall's: `resolved` and `exact` are what a choice may change
    std::shared_ptr<const Prepared> prepared;  ///< as TunedCall's, of the kernel
    std::string name() const { return resolved.specialization.to_string(); }
    bool is_of(const Wanted& call) const {
      return name() == call.name() && undecided.empty() == call.undecided.empty();
    }
  };
  struct Loading;
  struct State;

  [[gnu::always_inline]] const LoadedKernel* find_plain_in(const ReadyTable& table, const char* const* names,
                                                           const kiln_value* values,
                                                           std::size_t count) const noexcept {
    if (names || !values || count > parameters_ || count > ReadyTable::kFew) return nullptr;
    PackedParameters packed;
    const auto plain = [&](std::uint32_t i, bool& fits) {
      fits = values[i].kind == kinds_[i];
      return values[i].integer;
    };
    return packed.set_plain(static_cast<std::uint32_t>(count), plain) ? table.find_few(packed) : nullptr;
  }
  const LoadedKernel* find_with_care(const ReadyTable& table, const char* const* names,
                                     const kiln_value* values, std::size_t count) const noexcept;
  bool pack_with_care(const char* const* names, const kiln_value* values, std::size_t count,
                      PackedParameters& out) const noexcept;
  bool pack_named(const char* const* names, const kiln_value* values, std::size_t count,
                  std::int64_t* out) const noexcept;
  bool pack(std::size_t parameter, const kiln_value& value, std::int64_t& out) const noexcept;
  TunedCall resolve(std::span<const Value> values, const GetRequest& request, source::Archs archs,
                    Disk disk) const;
  Wanted want(std::span<const Value> values, const GetRequest& request, Disk disk = Disk::asked,
              source::Archs archs = source::Archs::supported) const;
  /// Asks the stores for what is undecided; it stays so where they do not answer, for this once.
  Wanted decided(Wanted wanted, const GetRequest& request) const;

  ReadyTable& table(source::Which which) noexcept {
    return which == source::Which::kernel ? ready_ : ready_references_;
  }
  const LoadedKernel* ready(const Wanted& wanted, source::Which which);
  /// The same for threads of kiln's own, away from which nobody keeps a release.
  const LoadedKernel* ready_behind(const Wanted& wanted, source::Which which);
  void check_usable() const;
  /// Whether a miss must be refused because of a capture. Asks the driver only when a stream was given.
  bool captures(const GetRequest& request) const;
  /// Throws when the seal is in the way; records what is admitted.
  void admit(const Wanted& wanted, const GetRequest& request);
  [[noreturn]] void refuse_in_capture(const Wanted& wanted) const;
  const LoadedKernel& make(const Wanted& wanted, const GetRequest& request);
  ObtainOptions options_of(const GetRequest& request) const noexcept;
  const LoadedKernel& load_once(const Wanted& wanted, source::Instantiation unit, Obtained obtained,
                                const GetRequest& request);
  void load_and_land(const Wanted& wanted, const source::Instantiation& unit, Obtained obtained,
                     const GetRequest& request, Loading& loading) noexcept;
  void give_up(Loading& loading, std::exception_ptr error) noexcept;
  void check_kept(const Wanted& wanted, const GetRequest& request);
  void check_unsealed(const Wanted& wanted, const GetRequest& request);
  std::unique_ptr<LoadedKernel> load(const source::Instantiation& unit, Obtained obtained,
                                     ObtainOptions options);
  const LoadedKernel& decide_and_make(const Wanted& undecided, const GetRequest& request);
  void make_behind(const Wanted& wanted);
  void make_here(const Wanted& undecided, const GetRequest& request);
  Wanted want_soon(std::span<const Value> values, const GetRequest& request) const;
  const LoadedKernel& choose(const Wanted& wanted, const LoadedKernel& kernel, bool is_fallback);
  std::vector<std::string> adopt_locked(State& state);
  void tell_adopted(const std::vector<std::string>& names) const;
  std::vector<Value> values_for_fallback(const Wanted& wanted) const;
  const LoadedKernel* specialised_at_once(const Wanted& wanted, const GetRequest& request);

  Service& service_;
  const std::shared_ptr<const source::Template> origin_;
  const Target target_;
  const std::uint64_t generation_ = base::process_generation();
  const std::uint32_t parameters_;                   ///< how many the manifest has
  std::int64_t kinds_[source::kMaxParameters] = {};  ///< KILN_VALUE_* of numbers; what else needs a look
  ReadyTable ready_, ready_references_, chosen_;     ///< written under the state's mutex
  std::weak_ptr<KernelTemplate> fallback_;           ///< of the same scope; empty: none
  base::PerProcess<State> state_;
};

}  // namespace kiln::runtime
