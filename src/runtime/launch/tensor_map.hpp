// A tensor map of a launch: its properties from the manifest's expressions, checked and encoded by the driver.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kiln/dtype.hpp"
#include "manifest/manifest.hpp"
#include "toolchain/driver.hpp"

namespace kiln::runtime {

/// The properties of one tensor map that are numbers.
struct TensorMapShape {
  static constexpr std::size_t kRank = source::kMaxTensorMapRank;
  /// Positions in `values`. The first four properties have one for each dimension.
  enum Property : std::size_t {
    dims = 0,
    strides = dims + kRank,  ///< of the dimensions after the first, in the manifest's unit
    box = strides + kRank,
    element_strides = box + kRank,
    swizzle = element_strides + kRank,
    l2,
    interleave,
    properties
  };
  std::array<std::int64_t, properties> values{};
};

/// CUtensorMap, as the driver wants it.
struct alignas(64) EncodedTensorMap {
  std::array<std::uint64_t, source::kTensorMapBytes / 8> words;
};

/// A [[tensormap]] with a kernel's parameters and device folded in. Immutable, thread-safe.
class TensorMapRecipe {
 public:
  using Fold = std::function<source::Expression(const source::Expression&)>;
  /// A property that depends on the call.
  struct Varying {
    std::size_t property;  ///< its position in TensorMapShape::values
    source::Expression value;
    int slot = value.only_slot().value_or(-1);  ///< the slot that `value` is; -1 when it has more than that
    std::int64_t of(std::span<const std::int64_t> slots) const {
      return slot >= 0 ? slots[static_cast<std::size_t>(slot)] : value.evaluate(slots);
    }
  };

  /// `slots`: as for a LaunchRecipe, whose folding `fold` does. Borrows `manifest`.
  TensorMapRecipe(const source::Manifest& manifest, std::size_t index, std::span<const std::int64_t> slots,
                  const Fold& fold);

  const source::TensorMapSpec& spec() const noexcept { return *spec_; }
  /// The position of the map in the manifest.
  std::size_t index() const noexcept { return index_; }
  /// The argument that points to the array.
  const source::ArgumentSpec& array() const noexcept;
  const std::vector<Varying>& varying() const noexcept { return varying_; }
  /// The properties for a call; `values`: of `varying()`, in order.
  TensorMapShape shape(std::span<const std::uint64_t> values) const;
  /// Why there is no such map of an array at `address`, naming map, argument, property and value; "" when there is one.
  std::string problem(std::uint64_t address, const TensorMapShape& shape) const;
  /// Why there is no such map in any call, as problem() says it; "" where a call may decide it. Properties that a call
  /// decides count as allowed.
  std::string problem_of_constants() const;
  /// Throws Error(driver), naming `doing`. REQUIRES: there is no problem.
  EncodedTensorMap encode(const toolchain::Driver& driver, std::uint64_t address, const TensorMapShape& shape,
                          const std::string& doing) const;

 private:
  void take(TensorMapShape::Property first, const std::vector<source::Expression>& from, std::size_t count,
            const Fold& fold);
  /// Takes one property, which is 1 when the expression is empty.
  void take(std::size_t property, const source::Expression& from, const Fold& fold);
  std::string problem_of_dimension(const TensorMapShape& shape, std::size_t i) const;
  std::string problem_of_modes(const TensorMapShape& shape) const;
  std::int64_t byte_stride(const TensorMapShape& shape, std::size_t i) const;
  std::int64_t item() const noexcept { return static_cast<std::int64_t>(size_of(dtype_)); }

  const source::Manifest* manifest_;
  const source::TensorMapSpec* spec_;
  std::size_t index_, rank_;
  Dtype dtype_;
  TensorMapShape constants_;
  std::vector<Varying> varying_;
};

}  // namespace kiln::runtime
