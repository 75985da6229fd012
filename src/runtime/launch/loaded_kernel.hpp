// A kernel in a context: its function, its manifest's geometry, and the checks before a launch.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/lazy.hpp"
#include "kiln/kernel.hpp"
#include "runtime/launch/attention_plan.hpp"
#include "runtime/launch/launch_plan.hpp"
#include "runtime/launch/library.hpp"
#include "runtime/path/pipeline.hpp"
#include "source/instantiate.hpp"

namespace kiln::runtime {

/// Of an entry point's parameters, derives, arguments, run-time values and exports; checked when a template
/// is opened.
inline constexpr int kMaxSlots = 256;

/// A launch whose arguments are converted and checked and whose geometry is known. Large, and written only
/// where a launch needs it.
struct PreparedLaunch {
  std::array<std::uint64_t, source::kMaxArguments> storage;  ///< of arguments that were converted
  std::array<void*, source::kMaxArguments> parameters;
  std::array<std::int64_t, kMaxSlots> slots;  ///< those that the plan's expressions read
  Geometry config;
};

class LoadedKernel {
 public:
  /// Entry point number `entry` of what was loaded: 0 is the one that comes first, and owns the others, to
  /// which it is `first`.
  /// Throws Error(requirement) when the manifest's launch can never be that of the image.
  LoadedKernel(const toolchain::Driver& driver, const toolchain::DeviceFacts& device,
               std::shared_ptr<const source::Template> origin, source::Which which, source::Resolved resolved,
               Obtained obtained, std::shared_ptr<const Library> library, std::size_t entry = 0,
               const LoadedKernel* first = nullptr);
  ~LoadedKernel();

  /// Throws Error: arguments (invalid_argument), [[require]] and alignment (requirement), the driver's
  /// refusal and a child forked after cuInit (driver). Thread-safe, as is all of it.
  void launch(toolchain::CUstream stream, const kiln_arg_type* types, const void* const* data,
              std::size_t count) const;
  /// The same up to the driver call.
  void prepare(const kiln_arg_type* types, const void* const* data, std::size_t count,
               PreparedLaunch& out) const;
  void launch_prepared(toolchain::CUstream stream, PreparedLaunch& prepared) const;
  void launch_raw(const kiln_launch_config& config, void** parameters) const;

  toolchain::CUfunction function() const noexcept { return function_; }
  /// The entry point of that name in the same image. Throws Error(invalid_argument) naming those there are.
  const LoadedKernel& entry(std::string_view name) const;
  /// A [[global]]'s place in this context. Throws Error(invalid_argument), likewise.
  Library::Global global(std::string_view name) const;
  /// An [export]'s value. Throws Error(invalid_argument), likewise.
  std::int64_t constant(std::string_view name) const;
  const StoredImage& image() const noexcept { return *obtained_.image; }
  const std::shared_ptr<const StoredImage>& shared_image() const noexcept { return obtained_.image; }
  Outcome outcome() const noexcept { return obtained_.outcome; }
  const source::Resolved& resolved() const noexcept { return resolved_; }
  /// Of this entry point, on this arch.
  const source::Manifest& manifest() const noexcept { return manifest_; }
  /// Values of the manifest's parameters, derives, exports, arch and device; those of calls are 0.
  const std::vector<std::int64_t>& fixed_slots() const noexcept { return plan_.slots; }
  /// Throws Error(invalid_argument) when the manifest has no [plan] of kind "attention".
  const AttentionKernel& attention() const;
  const compile::EntryFacts& facts() const noexcept { return facts_; }
  const std::string& specialization() const noexcept { return name_; }

 private:
  struct CheckedTypes;

  const source::LaunchSpec& spec() const noexcept;
  std::vector<std::int64_t> known_slots(const toolchain::DeviceFacts& device) const;
  void check_block(const Geometry& config) const;
  void check_cluster(const Geometry& config) const;
  std::uint32_t argument_bytes(std::size_t i) const noexcept;
  std::uint64_t check_types(const kiln_arg_type* types, std::size_t count) const;
  std::uint64_t check_new_types(const kiln_arg_type* types, std::size_t count) const;
  void check_count(std::size_t count) const;
  std::uint64_t checked_conversions(const kiln_arg_type* types, std::size_t count) const;
  void convert(std::size_t index, kiln_arg_type type, const void* data, PreparedLaunch& out) const;
  std::int64_t integer_of(std::size_t index, source::ArgumentType::Kind kind, kiln_arg_type type,
                          const void* data) const;
  [[noreturn]] void fail_to_fit(std::size_t index, kiln_arg_type type, std::int64_t value) const;
  [[noreturn]] void fail_to_fit(std::size_t index, double value) const;
  void compute_omitted(std::size_t given, PreparedLaunch& out) const;
  void check_values(const PreparedLaunch& out) const;
  void check_alignment(const LaunchPlan::Alignment& alignment, std::uint64_t address,
                       const PreparedLaunch& out) const;
  [[noreturn]] void fail_requirement(const source::Requirement& broken, const PreparedLaunch& out) const;

  void set_geometry(PreparedLaunch& out) const;
  void set_dimension(const LaunchPlan::Dimension& dimension, PreparedLaunch& out) const;
  void set_shared_memory(PreparedLaunch& out) const;
  std::int64_t occupancy(const Geometry& config) const;
  void allow_shared_memory(std::int64_t bytes) const;
  void allow_large_cluster() const;
  [[noreturn]] void refuse_cluster(const toolchain::LaunchConfig& config) const;
  void submit(const toolchain::LaunchConfig& config, void** parameters) const;
  void refuse_other_process() const {
    if (process_word_.load(std::memory_order_relaxed) != process_) [[unlikely]]
      fail_in_other_process();
  }
  [[noreturn]] void fail_in_other_process() const;
  [[noreturn]] void fail(Errc code, const std::string& what) const;

  const toolchain::Driver& driver_;
  const std::shared_ptr<const source::Template> origin_;
  const source::Which which_;
  source::Resolved resolved_;
  const source::Manifest& manifest_;  ///< in origin_
  Obtained obtained_;
  const compile::EntryFacts& facts_;  ///< in obtained_
  const std::shared_ptr<const Library> library_;
  const toolchain::CUfunction function_;
  std::string name_;
  const LaunchPlan plan_;
  const std::atomic<std::uint64_t>& process_word_ = base::process_word();
  const std::uint64_t process_ = base::process_generation();  ///< a fork after cuInit takes the driver away
  /// Lists of types that fitted; beyond these a list is checked at every launch.
  mutable std::array<std::atomic<const CheckedTypes*>, 8> checked_{};
  mutable std::atomic<std::int64_t> occupancy_{-1};  ///< when it is the same for all launches
  mutable base::Lazy<AttentionKernel> attention_;
  mutable std::mutex allowing_;  ///< guards raising what follows and the driver's attribute together
  mutable std::atomic<std::int64_t> shared_allowed_;
  mutable std::atomic<bool> large_cluster_allowed_{false};
  const LoadedKernel* const first_;                           ///< null: this is the first
  std::vector<std::unique_ptr<const LoadedKernel>> entries_;  ///< of the first: the others
};

}  // namespace kiln::runtime
