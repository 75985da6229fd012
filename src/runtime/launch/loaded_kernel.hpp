// A kernel in a context: its function, its manifest's geometry, and the checks before a launch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/lazy.hpp"
#include "instantiate/instantiate.hpp"
#include "kiln/kernel.hpp"
#include "runtime/launch/arguments.hpp"
#include "runtime/launch/fault_words.hpp"
#include "runtime/launch/geometry.hpp"
#include "runtime/launch/library.hpp"
#include "runtime/launch/process_guard.hpp"
#include "runtime/launch/work_list.hpp"
#include "runtime/path/image.hpp"

namespace kiln::runtime {

class LoadedKernel {
 public:
  /// Entry point number `entry` of a loaded image. Entry point 0 owns the others, which get it as `first`.
  /// Throws Error(requirement) when the manifest's launch can never fit the image.
  LoadedKernel(const toolchain::Driver& driver, const toolchain::DeviceFacts& device,
               std::shared_ptr<const source::Template> origin, source::Which which, source::Resolved resolved,
               Obtained obtained, std::shared_ptr<const Library> library,
               std::shared_ptr<FaultWords> faults = nullptr, std::size_t entry = 0,
               const LoadedKernel* first = nullptr);

  /// Throws Error: invalid_argument for the arguments, requirement for [[require]] and alignment, driver for
  /// the driver's refusal and in a child forked after cuInit. Thread-safe, as all of this class is.
  void launch(toolchain::CUstream stream, const kiln_arg_type* types, const void* const* data,
              std::size_t count) const;
  /// Does what `launch` does before the driver call.
  void prepare(const kiln_arg_type* types, const void* const* data, std::size_t count,
               PreparedLaunch& out) const;
  void launch_prepared(toolchain::CUstream stream, PreparedLaunch& prepared) const {
    geometry_.submit(stream, prepared);
  }
  void launch_raw(const kiln_launch_config& config, void** parameters) const;

  toolchain::CUfunction function() const noexcept { return function_; }
  /// The entry point of that name in the same image. Throws an Error(invalid_argument) that names the
  /// existing ones.
  const LoadedKernel& entry(std::string_view name) const;
  /// The place of a [[global]] in this context. Throws as entry().
  Library::Global global(std::string_view name) const;
  /// The value of an [export]. Throws as entry().
  std::int64_t constant(std::string_view name) const;
  const StoredImage& image() const noexcept { return *obtained_.image; }
  /// The words that report failed launches; null where the image has none.
  const std::shared_ptr<FaultWords>& faults() const noexcept { return faults_; }
  const std::shared_ptr<const StoredImage>& shared_image() const noexcept { return obtained_.image; }
  Outcome outcome() const noexcept { return obtained_.outcome; }
  const source::Resolved& resolved() const noexcept { return resolved_; }
  /// The manifest of this entry point, on this arch.
  const source::Manifest& manifest() const noexcept { return kernel_.manifest; }
  /// Values of the manifest's parameters, derives, exports, arch and device; slots that depend on a
  /// call are 0.
  const std::vector<std::int64_t>& fixed_slots() const noexcept { return kernel_.recipe.slots; }
  /// The values that all work lists of the kernel share. REQUIRES: the manifest has a [work_list].
  const WorkListFacts& work_list() const;
  const compile::EntryFacts& facts() const noexcept { return kernel_.facts; }
  const std::string& specialization() const noexcept { return kernel_.name; }

 private:
  const std::shared_ptr<const source::Template> origin_;
  const source::Resolved resolved_;
  const Obtained obtained_;
  const std::shared_ptr<const Library> library_;
  const std::shared_ptr<FaultWords> faults_;
  const toolchain::CUfunction function_;
  const KernelDescription kernel_;
  const LaunchArguments arguments_;
  const LaunchGeometry geometry_;
  const ProcessGuard process_;
  mutable base::Lazy<WorkListFacts> work_list_;
  const LoadedKernel* const first_;                           ///< null: this is entry point 0
  std::vector<std::unique_ptr<const LoadedKernel>> entries_;  ///< the others; only entry point 0 has them
};

}  // namespace kiln::runtime
