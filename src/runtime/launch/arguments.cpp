#include "runtime/launch/arguments.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "compile/compiler/layout_check.hpp"
#include "instantiate/instantiate.hpp"
#include "kiln/error.hpp"
#include "runtime/launch/given_integer.hpp"

namespace kiln::runtime {
namespace {

using source::ArgumentSpec;
using Kind = source::ArgumentType::Kind;

const char* kind_name(std::uint32_t kind) {
  constexpr const char* names[] = {"a pointer", "a signed integer", "an unsigned integer",
                                   "a floating-point number", "a struct"};
  return kind < 5 ? names[kind] : "something unknown";
}

/// True when an argument's bytes are already what the kernel takes.
bool is_as_declared(Kind want, kiln_arg_type have) {
  switch (want) {
    case Kind::i32:
    case Kind::i64:
      return have.kind == KILN_ARG_SIGNED && have.size == (want == Kind::i32 ? 4u : 8u);
    case Kind::u32:
    case Kind::u64:
      return have.kind == KILN_ARG_UNSIGNED && have.size == (want == Kind::u32 ? 4u : 8u);
    case Kind::f32:
      return have.size == 4;
    case Kind::f64:
      return have.size == 8;
    default:
      return true;
  }
}

double read_float(Kind kind, const void* data) {
  float narrow;
  double wide;
  if (kind == Kind::f64) return std::memcpy(&wide, data, sizeof wide), wide;
  return std::memcpy(&narrow, data, sizeof narrow), static_cast<double>(narrow);
}

/// An argument of a declared kind, as expressions know it.
std::int64_t read_declared(Kind kind, const void* data) {
  switch (kind) {
    case Kind::i32:
      return read_as<std::int32_t>(data);
    case Kind::u32:
      return read_as<std::uint32_t>(data);
    case Kind::f32:
    case Kind::f64:
      return source::away_from_zero(read_float(kind, data));
    default:
      return read_as<std::int64_t>(data);
  }
}

}  // namespace

/// A list of types that passed the check.
struct LaunchArguments::CheckedTypes {
  std::vector<kiln_arg_type> types;
  std::uint64_t conversions;  ///< bit i: argument i is converted

  /// Compares contents, so that a caller may keep its lists where it likes.
  bool is(const kiln_arg_type* other, std::size_t count) const noexcept {
    if (count != types.size()) return false;
    for (std::size_t i = 0; i < count; ++i)
      if (std::bit_cast<std::uint64_t>(types[i]) != std::bit_cast<std::uint64_t>(other[i])) return false;
    return true;
  }
};

LaunchArguments::~LaunchArguments() {
  for (const auto& list : checked_) delete list.load(std::memory_order_relaxed);
}

void LaunchArguments::check_count(std::size_t count) const {
  const auto& arguments = kernel_.manifest.arguments;
  std::size_t required = arguments.size();
  while (required > 0 && arguments[required - 1].optional) --required;
  const std::size_t runtime = kernel_.manifest.runtime.size();
  if (runtime > 0) required = arguments.size();  // run-time values follow only a full list of arguments
  if (count >= required + runtime && count <= arguments.size() + runtime) return;
  std::string names;
  for (const ArgumentSpec& a : arguments)
    names += (names.empty() ? "" : ", ") + a.name + (a.optional ? "?" : "");
  for (const auto& r : kernel_.manifest.runtime) names += (names.empty() ? "" : ", ") + r.name;
  kernel_.fail(Errc::invalid_argument,
               "launched with " + std::to_string(count) + " arguments, expected (" + names + ")");
}

std::uint64_t LaunchArguments::checked_conversions(const kiln_arg_type* types, std::size_t count) const {
  const auto& arguments = kernel_.manifest.arguments;
  std::uint64_t conversions = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool extra = i >= arguments.size();
    const std::string& name = extra ? kernel_.manifest.runtime[i - arguments.size()].name : arguments[i].name;
    const Kind want = extra ? Kind::i64 : arguments[i].type.kind;
    const std::uint32_t have = types[i].kind;
    const std::uint32_t size = types[i].size;
    const bool integer = is_given_integer(types[i]);
    const bool good = want == Kind::pointer ? have == KILN_ARG_POINTER && size == 8
                      : is_integer(want)    ? integer
                      : !extra && arguments[i].type.is_float()
                          ? have == KILN_ARG_FLOAT && (size == 4 || size == 8)
                          : have == KILN_ARG_BYTES && size == kernel_.bytes_of(i);
    if (!good) {
      std::string wanted = extra ? "i64" : arguments[i].type.to_string(kernel_.manifest.parameters);
      if (!extra && want == Kind::structure && arguments[i].type.size() == 0)
        wanted += " of " + std::to_string(kernel_.bytes_of(i)) + " bytes";
      kernel_.fail(Errc::invalid_argument, "argument " + std::to_string(i) + " '" + name + "' is " +
                                               kind_name(have) + " of " + std::to_string(size) +
                                               " bytes, expected " + wanted);
    }
    if (!extra && !is_as_declared(want, types[i])) conversions |= std::uint64_t{1} << i;
  }
  return conversions;
}

/// Checks a list of types. Bit i of the result: argument i is converted.
inline std::uint64_t LaunchArguments::check_types(const kiln_arg_type* types, std::size_t count) const {
  for (const auto& known : checked_) {
    const CheckedTypes* list = known.load(std::memory_order_acquire);
    if (!list) break;
    if (list->is(types, count)) return list->conversions;
  }
  return check_new_types(types, count);
}

std::uint64_t LaunchArguments::check_new_types(const kiln_arg_type* types, std::size_t count) const {
  // A kernel without declared arguments was not checked before.
  compile::check_layout(kernel_.manifest, kernel_.recipe.passed, kernel_.facts, kernel_.name);
  check_count(count);
  const std::uint64_t conversions = checked_conversions(types, count);
  auto made = std::make_unique<const CheckedTypes>(CheckedTypes{{types, types + count}, conversions});
  for (auto& free : checked_) {
    const CheckedTypes* present = nullptr;
    if (free.compare_exchange_strong(present, made.get(), std::memory_order_acq_rel)) {
      static_cast<void>(made.release());  // the list's now
      break;
    }
    if (present->is(types, count)) break;  // another thread has just added it
  }
  return conversions;
}

void LaunchArguments::fail_to_fit(std::size_t i, kiln_arg_type type, std::int64_t value) const {
  const auto& arguments = kernel_.manifest.arguments;
  const bool extra = i >= arguments.size();
  const bool huge = type.kind == KILN_ARG_UNSIGNED && value < 0;
  kernel_.fail(
      Errc::invalid_argument,
      "argument '" + (extra ? kernel_.manifest.runtime[i - arguments.size()].name : arguments[i].name) +
          "' = " + (huge ? std::to_string(static_cast<std::uint64_t>(value)) : std::to_string(value)) +
          " does not fit " + (extra ? "i64" : arguments[i].type.to_string(kernel_.manifest.parameters)));
}

void LaunchArguments::fail_to_fit(std::size_t i, double value) const {
  kernel_.fail(Errc::invalid_argument, "argument '" + kernel_.manifest.arguments[i].name +
                                           "' = " + std::to_string(value) + " does not fit f32");
}

/// Reads an integer. Throws when it does not fit `kind`, the declared type of argument or run-time value `i`.
inline std::int64_t LaunchArguments::integer_of(std::size_t i, Kind kind, kiln_arg_type type,
                                                const void* data) const {
  const std::int64_t value = read_given_integer(type, data);
  // Only unsigned integers of 64 bits can be huge: narrower ones fit the signed range.
  const bool huge = type.kind == KILN_ARG_UNSIGNED && value < 0;
  if (!fits(kind, value, huge)) [[unlikely]]
    fail_to_fit(i, type, value);
  return value;
}

inline void LaunchArguments::convert(std::size_t i, kiln_arg_type type, const void* data,
                                     PreparedLaunch& out) const {
  const Kind kind = kernel_.manifest.arguments[i].type.kind;
  out.parameters[i] = &out.storage[i];
  if (is_integer(kind)) {
    out.storage[i] = static_cast<std::uint64_t>(integer_of(i, kind, type, data));
  } else if (kind == Kind::f32) {
    double wide;
    std::memcpy(&wide, data, sizeof wide);
    if (std::isfinite(wide) && std::fabs(wide) > std::numeric_limits<float>::max()) [[unlikely]]
      fail_to_fit(i, wide);
    const auto value = static_cast<float>(wide);
    std::memcpy(&out.storage[i], &value, sizeof value);
  } else {
    float narrow;
    std::memcpy(&narrow, data, sizeof narrow);
    const double value = narrow;
    std::memcpy(&out.storage[i], &value, sizeof value);
  }
}

void LaunchArguments::compute_omitted(std::size_t given, PreparedLaunch& out) const {
  for (const LaunchRecipe::Computed& c : kernel_.recipe.computed) {
    if (c.argument < given) continue;
    const ArgumentSpec& spec = kernel_.manifest.arguments[c.argument];
    const std::int64_t value = c.value.evaluate(out.slots);
    if (!fits(spec.type.kind, value)) {
      kernel_.fail(Errc::requirement, "argument '" + spec.name + "', left out, = " + c.value.text() + " = " +
                                          std::to_string(value) + " does not fit " +
                                          spec.type.to_string(kernel_.manifest.parameters));
    }
    out.storage[c.argument] = static_cast<std::uint64_t>(value);
    out.parameters[c.argument] = &out.storage[c.argument];
    out.slots[c.slot] = value;
  }
}

inline void LaunchArguments::check_values(const PreparedLaunch& out) const {
  for (const LaunchRecipe::Alignment& alignment : kernel_.recipe.alignments) {
    std::uint64_t address;
    std::memcpy(&address, out.parameters[alignment.argument], sizeof address);
    if (address & alignment.mask) [[unlikely]]
      check_alignment(alignment, address, out);
  }
  for (const LaunchRecipe::Requirement& requirement : kernel_.recipe.requirements) {
    if (requirement.expression.evaluate(out.slots) == 0) [[unlikely]]
      fail_requirement(*requirement.origin, out);
  }
}

void LaunchArguments::check_alignment(const LaunchRecipe::Alignment& alignment, std::uint64_t address,
                                      const PreparedLaunch& out) const {
  const std::int64_t bytes = alignment.bytes.evaluate(out.slots);
  if (bytes <= 1 || address % static_cast<std::uint64_t>(bytes) == 0) return;
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  kernel_.fail(Errc::requirement, "argument '" + kernel_.manifest.arguments[alignment.argument].name +
                                      "' = " + text + " is not aligned to " + std::to_string(bytes) +
                                      " bytes (" + alignment.bytes.text() + ")");
}

/// Reads all arguments again, because the message may name some that no expression reads.
void LaunchArguments::fail_requirement(const source::Requirement& broken, const PreparedLaunch& out) const {
  const source::SlotLayout& layout = kernel_.manifest.slots;
  std::vector<std::int64_t> slots = kernel_.recipe.slots;
  std::vector<double> floats(kernel_.manifest.arguments.size());
  for (std::size_t i = 0; i < kernel_.manifest.arguments.size(); ++i) {
    const Kind kind = kernel_.manifest.arguments[i].type.kind;
    if (kernel_.manifest.arguments[i].type.is_float()) floats[i] = read_float(kind, out.parameters[i]);
    if (kind == Kind::pointer || is_integer(kind))
      slots[static_cast<std::size_t>(layout.argument_slot(static_cast<int>(i)))] =
          read_declared(kind, out.parameters[i]);
  }
  std::copy_n(out.slots.begin() + layout.runtime_slot(0), layout.runtime,
              slots.begin() + layout.runtime_slot(0));
  kernel_.fail(Errc::requirement, source::render_message(kernel_.manifest, broken.message, slots, floats) +
                                      " (" + broken.expression.text() + ")");
}

void LaunchArguments::take(const kiln_arg_type* types, const void* const* data, std::size_t count,
                           PreparedLaunch& out) const {
  const std::uint64_t conversions = check_types(types, count);
  const std::size_t all = kernel_.recipe.defaults.size();
  const std::size_t given = std::min(count, all);
  for (std::size_t i = 0; i < given; ++i)
    out.parameters[i] = const_cast<void*>(data[i]);  // the driver copies, and does not write
  for (std::uint64_t left = conversions; left != 0; left &= left - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(left));
    convert(i, types[i], data[i], out);
  }
  for (std::size_t i = given; i < all; ++i)
    out.parameters[i] = const_cast<std::uint64_t*>(&kernel_.recipe.defaults[i]);
  for (const LaunchRecipe::Read& read : kernel_.recipe.reads)
    out.slots[read.slot] = read_declared(read.kind, out.parameters[read.argument]);
  for (std::size_t i = all; i < count; ++i) {
    const int slot = kernel_.manifest.slots.runtime_slot(static_cast<int>(i - all));
    out.slots[static_cast<std::size_t>(slot)] = integer_of(i, Kind::i64, types[i], data[i]);
  }
  if (given < all && !kernel_.recipe.computed.empty()) compute_omitted(given, out);
  check_values(out);
}

}  // namespace kiln::runtime
