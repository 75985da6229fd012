#include "runtime/launch/tensor_map.hpp"

#include <algorithm>
#include <cstdio>

namespace kiln::runtime {
namespace {

using Shape = TensorMapShape;
using source::Expression;

constexpr std::int64_t kMostExtent = std::int64_t{1} << 32, kMostStride = (std::int64_t{1} << 40) - 1;
constexpr std::int64_t kMostBox = 256, kMostElementStride = 8;

/// CUtensorMapDataType.
int data_type(Dtype dtype, source::TensorMapSpec::Float32 float32) noexcept {
  switch (dtype) {
    case Dtype::f16:
      return 6;
    case Dtype::f32:
      return std::array{7, 10, 11, 12}[static_cast<std::size_t>(float32)];
    case Dtype::f64:
      return 8;
    case Dtype::bf16:
      return 9;
    case Dtype::u32:
      return 2;
    case Dtype::i32:
      return 3;
    case Dtype::u64:
      return 4;
    case Dtype::i64:
      return 5;
    default:  // bytes: integers of 8 bits, e4m3, e5m2, ue8m0
      return 0;
  }
}

/// A mode of the driver by its bytes: `modes[i]` bytes are mode i. -1: there is no such mode.
int mode(std::initializer_list<std::int64_t> modes, std::int64_t bytes) {
  const auto found = std::find(modes.begin(), modes.end(), bytes);
  return found == modes.end() ? -1 : static_cast<int>(found - modes.begin());
}
int swizzle_mode(std::int64_t bytes) { return mode({0, 32, 64, 128}, bytes); }
int l2_mode(std::int64_t bytes) { return mode({0, 64, 128, 256}, bytes); }
int interleave_mode(std::int64_t bytes) { return mode({0, 16, 32}, bytes); }

std::string named(const char* property, const Expression& expression, std::int64_t value) {
  const std::string number = std::to_string(value);
  return std::string(property) + " = " +
         (expression.text() == number ? number : expression.text() + " = " + number);
}
std::string named(const char* property, std::size_t i, const Expression& expression, std::int64_t value) {
  return named((std::string(property) + '[' + std::to_string(i) + ']').c_str(), expression, value);
}

}  // namespace

TensorMapRecipe::TensorMapRecipe(const source::Manifest& manifest, std::size_t index,
                                 std::span<const std::int64_t> slots, const Fold& fold)
    : manifest_(&manifest),
      spec_(&manifest.tensor_maps[index]),
      index_(index),
      rank_(spec_->dims.size()),
      dtype_(static_cast<Dtype>(spec_->element.evaluate(slots))) {
  take(Shape::dims, spec_->dims, rank_, fold);
  take(Shape::strides, spec_->strides, rank_ - 1, fold);
  take(Shape::box, spec_->box, rank_, fold);
  take(Shape::element_strides, spec_->element_strides, rank_, fold);
  take(Shape::swizzle, spec_->swizzle, fold);
  take(Shape::l2, spec_->l2, fold);
  take(Shape::interleave, spec_->interleave, fold);
}

void TensorMapRecipe::take(Shape::Property first, const std::vector<Expression>& from, std::size_t count,
                           const Fold& fold) {
  for (std::size_t i = 0; i < count; ++i) take(first + i, from.empty() ? Expression() : from[i], fold);
}

void TensorMapRecipe::take(std::size_t property, const Expression& from, const Fold& fold) {
  Expression value = from.empty() ? Expression::constant(1) : fold(from);
  if (const auto constant = value.constant_value())
    constants_.values[property] = *constant;
  else
    varying_.push_back({property, std::move(value)});
}

const source::ArgumentSpec& TensorMapRecipe::array() const noexcept {
  return manifest_->arguments[static_cast<std::size_t>(spec_->of)];
}

TensorMapShape TensorMapRecipe::shape(std::span<const std::uint64_t> values) const {
  TensorMapShape out = constants_;
  for (std::size_t i = 0; i < varying_.size(); ++i)
    out.values[varying_[i].property] = static_cast<std::int64_t>(values[i]);
  return out;
}

/// The distance in bytes of neighbours in dimension i + 1; -1 when it is beyond every limit.
std::int64_t TensorMapRecipe::byte_stride(const Shape& shape, std::size_t i) const {
  const std::int64_t stride = shape.values[Shape::strides + i];
  if (spec_->strides_in_bytes) return stride;
  return stride < 0 || stride > kMostStride ? -1 : stride * item();
}

std::string TensorMapRecipe::problem_of_dimension(const Shape& shape, std::size_t i) const {
  const auto at = [&](std::size_t property) { return shape.values[property + i]; };
  if (at(Shape::dims) < 1 || at(Shape::dims) > kMostExtent)
    return named("dims", i, spec_->dims[i], at(Shape::dims)) + " is not in 1.." + std::to_string(kMostExtent);
  if (at(Shape::box) < 1 || at(Shape::box) > kMostBox)
    return named("box", i, spec_->box[i], at(Shape::box)) + " is not in 1.." + std::to_string(kMostBox);
  if (at(Shape::element_strides) < 1 || at(Shape::element_strides) > kMostElementStride)
    return named("element_strides", i, spec_->element_strides[i], at(Shape::element_strides)) +
           " is not in 1.." + std::to_string(kMostElementStride);
  if (i + 1 == rank_) return {};
  const std::int64_t unit = shape.values[Shape::interleave] == 32 ? 32 : 16;
  const std::int64_t bytes = byte_stride(shape, i);
  const char* const property = spec_->strides_in_bytes ? "byte_strides" : "strides";
  if (bytes < 0 || bytes > kMostStride)
    return named(property, i, spec_->strides[i], at(Shape::strides)) + " is not in 0..2^40 - 1 bytes";
  if (bytes % unit != 0)
    return named(property, i, spec_->strides[i], at(Shape::strides)) + " makes " + std::to_string(bytes) +
           " bytes, which is no multiple of " + std::to_string(unit);
  return {};
}

std::string TensorMapRecipe::problem_of_modes(const Shape& shape) const {
  const std::int64_t swizzle = shape.values[Shape::swizzle], interleave = shape.values[Shape::interleave];
  const std::int64_t l2 = shape.values[Shape::l2];
  if (swizzle_mode(swizzle) < 0)
    return named("swizzle", spec_->swizzle, swizzle) + " is not 0, 32, 64 or 128";
  if (l2_mode(l2) < 0) return named("l2", spec_->l2, l2) + " is not 0, 64, 128 or 256";
  if (interleave_mode(interleave) < 0)
    return named("interleave", spec_->interleave, interleave) + " is not 0, 16 or 32";
  if (interleave != 0 && rank_ < 3)
    return named("interleave", spec_->interleave, interleave) + " needs 3 dimensions or more";
  if (interleave == 32 && swizzle != 32)
    return "interleave = 32 needs swizzle = 32, and " + named("swizzle", spec_->swizzle, swizzle);
  const std::int64_t row = shape.values[Shape::box] * item();
  if (interleave != 0) return {};
  if (row % 16 != 0)
    return named("box", 0, spec_->box[0], shape.values[Shape::box]) + " makes rows of " +
           std::to_string(row) + " bytes, which is no multiple of 16";
  if (swizzle != 0 && row > swizzle)
    return named("box", 0, spec_->box[0], shape.values[Shape::box]) + " makes rows of " +
           std::to_string(row) + " bytes, and " + named("swizzle", spec_->swizzle, swizzle) +
           " allows no more than " + std::to_string(swizzle);
  return {};
}

std::string TensorMapRecipe::problem(std::uint64_t address, const Shape& shape) const {
  const std::string of = "tensor map '" + spec_->name + "' of argument '" + array().name + "': ";
  const std::uint64_t unit = shape.values[Shape::interleave] == 32 ? 32 : 16;
  if (address % unit != 0) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
    return of + "its address " + text + " is not aligned to " + std::to_string(unit) + " bytes";
  }
  for (std::size_t i = 0; i < rank_; ++i)
    if (const std::string why = problem_of_dimension(shape, i); !why.empty()) return of + why;
  if (const std::string why = problem_of_modes(shape); !why.empty()) return of + why;
  if (spec_->fill_nan && data_type(dtype_, spec_->float32) < 6)
    return of + "fill = \"nan\" needs floating-point elements of 16 bits or more, and they are " +
           std::string(to_string(dtype_));
  return {};
}

std::string TensorMapRecipe::problem_of_constants() const {
  Shape shape = constants_;
  for (const Varying& varying : varying_) {
    std::int64_t& value = shape.values[varying.property];
    value = 1;                                                // a dimension, a box and an element stride
    if (varying.property == Shape::box) value = 16 / item();  // the shortest row
    if (varying.property >= Shape::strides && varying.property < Shape::box) value = 0;
    if (varying.property >= Shape::swizzle) value = 0;
  }
  return problem(0, shape);
}

EncodedTensorMap TensorMapRecipe::encode(const toolchain::Driver& driver, std::uint64_t address,
                                         const Shape& shape, const std::string& doing) const {
  std::array<std::uint64_t, Shape::kRank> extents{}, distances{};
  std::array<std::uint32_t, Shape::kRank> box{}, steps{};
  for (std::size_t i = 0; i < rank_; ++i) {
    extents[i] = static_cast<std::uint64_t>(shape.values[Shape::dims + i]);
    box[i] = static_cast<std::uint32_t>(shape.values[Shape::box + i]);
    steps[i] = static_cast<std::uint32_t>(shape.values[Shape::element_strides + i]);
    if (i + 1 < rank_) distances[i] = static_cast<std::uint64_t>(byte_stride(shape, i));
  }
  EncodedTensorMap out{};
  driver.check(
      driver.cuTensorMapEncodeTiled(
          &out, data_type(dtype_, spec_->float32), static_cast<std::uint32_t>(rank_),
          reinterpret_cast<void*>(address), extents.data(), distances.data(), box.data(), steps.data(),
          interleave_mode(shape.values[Shape::interleave]), swizzle_mode(shape.values[Shape::swizzle]),
          l2_mode(shape.values[Shape::l2]), spec_->fill_nan ? 1 : 0),
      "cuTensorMapEncodeTiled", doing);
  return out;
}

}  // namespace kiln::runtime
