// A kernel in a context: its function, its manifest's geometry, and the checks before a launch.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kiln/kernel.hpp"
#include "runtime/library.hpp"
#include "runtime/pipeline.hpp"
#include "source/instantiate.hpp"

namespace kiln::runtime {

/// Enough for every manifest that parse_manifest accepts; checked when a template is opened.
inline constexpr int kMaxSlots = 256;

/// A launch whose arguments are converted and checked and whose geometry is known.
struct PreparedLaunch {
  std::array<std::uint64_t, source::kMaxArguments> storage;
  std::array<void*, source::kMaxArguments> parameters;
  std::array<std::int64_t, kMaxSlots> slots;
  toolchain::LaunchConfig config;
};

class LoadedKernel {
 public:
  LoadedKernel(const toolchain::Driver& driver, const toolchain::DeviceFacts& device,
               std::shared_ptr<const source::Template> origin, source::Which which, source::Resolved resolved,
               Obtained obtained, Library library);

  /// Throws Error: arguments (invalid_argument), [[require]] and alignment (requirement), the driver's
  /// refusal (driver).
  void launch(toolchain::CUstream stream, const kiln_arg_type* types, const void* const* data,
              std::size_t count) const;
  /// The same up to the driver call.
  void prepare(const kiln_arg_type* types, const void* const* data, std::size_t count,
               PreparedLaunch& out) const;
  void launch_prepared(toolchain::CUstream stream, PreparedLaunch& prepared) const;
  void launch_raw(const kiln_launch_config& config, void** parameters) const;

  toolchain::CUfunction function() const noexcept { return library_.function(); }
  const StoredImage& image() const noexcept { return *obtained_.image; }
  Outcome outcome() const noexcept { return obtained_.outcome; }
  const source::Resolved& resolved() const noexcept { return resolved_; }
  const source::Manifest& manifest() const noexcept { return origin_->manifest; }
  const std::string& specialization() const noexcept { return name_; }

 private:
  /// What goes with a launch as attributes. cluster[0] = 0: none.
  struct Extras {
    std::array<unsigned, 3> cluster{};
    bool pdl = false, cooperative = false;
  };
  void submit(toolchain::LaunchConfig& config, const Extras& extras, void** parameters) const;
  const source::LaunchSpec& spec() const noexcept;
  void check_layout() const;
  void check_types(const kiln_arg_type* types, std::size_t count) const;
  void store_argument(std::size_t index, kiln_arg_type type, const void* data, PreparedLaunch& out) const;
  void store_defaults(std::size_t from, PreparedLaunch& out) const;
  void store_default(std::size_t index, PreparedLaunch& out) const;
  void check_pointers(const PreparedLaunch& out) const;
  void set_geometry(PreparedLaunch& out) const;
  void allow_shared_memory(std::int64_t bytes) const;
  [[noreturn]] void fail(Errc code, const std::string& what) const;

  const toolchain::Driver& driver_;
  const std::shared_ptr<const source::Template> origin_;
  const source::Which which_;
  source::Resolved resolved_;
  Obtained obtained_;
  Library library_;
  std::string name_;
  std::array<std::int64_t, kMaxSlots> base_slots_{};
  bool wants_occupancy_ = false;
  mutable std::atomic<std::uintptr_t> checked_{
      0};                        ///< the last types that fitted, address and count in one word
  mutable std::mutex allowing_;  ///< guards raising shared_allowed_ and the driver's attribute together
  mutable std::atomic<std::int64_t> shared_allowed_;
};

}  // namespace kiln::runtime
