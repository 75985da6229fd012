// The part that all launches of a kernel share. It is computed when the kernel is loaded; a launch does only
// the rest.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "instantiate/instantiate.hpp"
#include "manifest/manifest.hpp"
#include "runtime/launch/tensor_map.hpp"
#include "toolchain/driver.hpp"

namespace kiln::runtime {

/// The attributes of a launch. cluster[0] = 0: no cluster.
struct Extras {
  std::array<unsigned, 3> cluster{};
  bool pdl = false, cooperative = false;
  /// Fills `attributes`, to which `config` points afterwards.
  void attach(std::array<toolchain::LaunchAttribute, 3>& attributes, toolchain::LaunchConfig& config) const;
};

struct Geometry : toolchain::LaunchConfig {
  unsigned cluster_x = 1, cluster_y = 1, cluster_z = 1;
  unsigned cluster_blocks() const noexcept { return cluster_x * cluster_y * cluster_z; }
  bool is_empty() const noexcept { return grid_x == 0 || grid_y == 0 || grid_z == 0; }
};

/// The manifest's expressions with a kernel's parameters and device folded in. Values that are equal for all
/// launches are in `config`. Requirements that can no longer break are gone. A check that would fail at every
/// launch stays, and fails there with its text. Immutable, thread-safe.
struct LaunchRecipe {
  using Kind = source::ArgumentType::Kind;

  /// `slots`: values of parameters, derives, exports, arch and device; all others are zero. The image of a reference
  /// has no exports, so checks that read them are left out, and it gets the call's arguments without tensor maps.
  LaunchRecipe(const source::Manifest& manifest, const source::LaunchSpec& spec,
               std::vector<std::int64_t> slots, std::int64_t static_shared_bytes,
               source::Which which = source::Which::kernel);
  LaunchRecipe(const LaunchRecipe&) = delete;  // config points to attributes_
  LaunchRecipe& operator=(const LaunchRecipe&) = delete;

  /// An integer or a pointer that an expression reads.
  struct Read {
    std::size_t argument, slot;
    Kind kind;
  };
  struct Alignment {
    std::size_t argument;
    std::uint64_t mask;  ///< an address with none of these bits is aligned, null too; others may not be
    source::Expression bytes;
  };
  struct Requirement {
    source::Expression expression;
    const source::Requirement* origin;
  };
  /// The value of an omitted argument that depends on the call.
  struct Computed {
    std::size_t argument, slot;
    source::Expression value;
  };
  /// A constant that the kernel is passed.
  struct Constant {
    Kind kind;
    source::Expression value;  ///< empty where no launch changes `bits`
    std::uint64_t bits;
    /// The bytes that the kernel gets for a value of the expression.
    std::uint64_t bits_for(std::int64_t number) const noexcept;
  };
  struct Dimension {
    source::Expression value;
    unsigned Geometry::*into;
    const char* name;
    std::size_t index;
    std::int64_t most;
  };

  const std::vector<std::int64_t> slots;
  std::vector<Read> reads;
  std::vector<std::uint64_t> defaults;  ///< for each argument, what the kernel gets when it is omitted
  std::vector<Computed> computed;       ///< computed instead of the default; each reads only earlier ones
  std::vector<Alignment> alignments;
  std::vector<Requirement> requirements;
  std::vector<Dimension> block, grid, cluster;  ///< dimensions that are not in `config`
  source::Expression smem;                      ///< empty: `config` has it
  bool wants_occupancy = false;
  std::vector<source::PassedArgument> passed;  ///< the kernel's arguments
  std::vector<TensorMapRecipe> tensor_maps;    ///< those that the kernel gets
  std::vector<Constant> constants;             ///< as in the manifest
  Geometry config;                             ///< with attributes, unless `cluster` is still to come
  Extras extras;                               ///< without the cluster

  /// True when the kernel's arguments are the call's.
  bool passes_the_call() const noexcept { return passes_the_call_; }

 private:
  using Fields = std::array<unsigned Geometry::*, 3>;
  using Limits = std::array<std::int64_t, 3>;

  void take_defaults(const source::Manifest& manifest);
  void take_checks(const source::Manifest& manifest, source::Which which);
  void take_passed(const source::Manifest& manifest, source::Which which);
  void take_geometry(const source::SlotLayout& layout, const source::LaunchSpec& spec,
                     std::int64_t static_shared_bytes);
  void take_reads(const source::Manifest& manifest);
  std::vector<Dimension> varying(const std::vector<source::Expression>& from, const char* name,
                                 const Fields& into, const Limits& most);
  source::Expression folded(const source::Expression& expression) const;

  bool passes_the_call_ = true;
  std::vector<bool> known_;  ///< slots whose values are equal for all launches
  std::array<toolchain::LaunchAttribute, 3> attributes_;
};

/// True when an argument declared as an integer of `kind` can hold `value`. `huge`: the value is unsigned and
/// beyond the signed range.
inline bool fits(source::ArgumentType::Kind kind, std::int64_t value, bool huge = false) noexcept {
  using Kind = source::ArgumentType::Kind;
  if (kind == Kind::u64) return value >= 0 || huge;
  if (huge) return false;
  if (kind == Kind::i64) return true;
  return kind == Kind::i32 ? value == static_cast<std::int32_t>(value)
                           : value == static_cast<std::uint32_t>(value);
}

}  // namespace kiln::runtime
