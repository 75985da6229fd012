// A launch's arguments: checked against manifest and recorded layout, converted to the declared types, and
// given to the expressions.
#include <cmath>
#include <cstring>
#include <limits>

#include "kiln/error.hpp"
#include "runtime/loaded_kernel.hpp"

namespace kiln::runtime {
namespace {

using source::ArgumentSpec;
using Kind = source::ArgumentType::Kind;

bool is_width(std::uint32_t bytes) { return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8; }
bool is_integer(Kind kind) {
  return kind == Kind::i32 || kind == Kind::i64 || kind == Kind::u32 || kind == Kind::u64;
}
bool is_float(Kind kind) { return kind == Kind::f32 || kind == Kind::f64; }

const char* kind_name(std::uint32_t kind) {
  constexpr const char* names[] = {"a pointer", "a signed integer", "an unsigned integer",
                                   "a floating-point number", "a struct"};
  return kind < 5 ? names[kind] : "something unknown";
}

std::int64_t read_integer(kiln_arg_type type, const void* data) {
  const auto read = [&](auto zero) {
    std::memcpy(&zero, data, sizeof zero);
    return static_cast<std::int64_t>(zero);
  };
  const bool is_signed = type.kind == KILN_ARG_SIGNED;
  switch (type.size) {
    case 1:
      return is_signed ? read(std::int8_t{}) : read(std::uint8_t{});
    case 2:
      return is_signed ? read(std::int16_t{}) : read(std::uint16_t{});
    case 4:
      return is_signed ? read(std::int32_t{}) : read(std::uint32_t{});
    default:
      return read(std::int64_t{});
  }
}

bool fits(Kind kind, std::int64_t value, bool was_unsigned_64) {
  switch (kind) {
    case Kind::i32:
      return !was_unsigned_64 && value >= INT32_MIN && value <= INT32_MAX;
    case Kind::u32:
      return !was_unsigned_64 && value >= 0 && value <= UINT32_MAX;
    case Kind::i64:
      return !was_unsigned_64;
    default:
      return value >= 0 || was_unsigned_64;
  }
}

}  // namespace

/// The manifest against the image: the driver trusts the parameter list that we give it.
void LoadedKernel::check_layout() const {
  const auto& declared = manifest().arguments;
  const auto& recorded = obtained_.image->facts.arguments;
  if (declared.size() != recorded.size()) {
    fail(Errc::manifest, "the manifest declares " + std::to_string(declared.size()) +
                             " arguments, and the kernel has " + std::to_string(recorded.size()));
  }
  for (const auto& argument : recorded) {
    const ArgumentSpec& a = declared.at(argument.ordinal);
    if (a.type.size() == argument.size) continue;
    fail(Errc::manifest, "argument " + std::to_string(argument.ordinal) + " '" + a.name + "' is " +
                             a.type.to_string(manifest().parameters) + " of " +
                             std::to_string(a.type.size()) + " bytes in the manifest, and has " +
                             std::to_string(argument.size) + " in the kernel");
  }
}

void LoadedKernel::check_types(const kiln_arg_type* types, std::size_t count) const {
  const std::uintptr_t call =
      reinterpret_cast<std::uintptr_t>(types) * 128 + count;  // addresses leave the top bits free
  if (checked_.load(std::memory_order_relaxed) == call) return;
  check_layout();
  const auto& arguments = manifest().arguments;
  std::size_t required = arguments.size();
  while (required > 0 && arguments[required - 1].optional) --required;
  const std::size_t runtime = manifest().runtime.size();
  if (runtime > 0) required = arguments.size();  // what follows the arguments needs all of them in place
  if (count < required + runtime || count > arguments.size() + runtime) {
    std::string names;
    for (const ArgumentSpec& a : arguments)
      names += (names.empty() ? "" : ", ") + a.name + (a.optional ? "?" : "");
    for (const auto& r : manifest().runtime) names += (names.empty() ? "" : ", ") + r.name;
    fail(Errc::invalid_argument,
         "launched with " + std::to_string(count) + " arguments, expected (" + names + ")");
  }
  for (std::size_t i = 0; i < count; ++i) {
    const bool extra = i >= arguments.size();
    const std::string& name = extra ? manifest().runtime[i - arguments.size()].name : arguments[i].name;
    const Kind want = extra ? Kind::i64 : arguments[i].type.kind;
    const std::uint32_t have = types[i].kind;
    const std::uint32_t size = types[i].size;
    const bool integer = (have == KILN_ARG_SIGNED || have == KILN_ARG_UNSIGNED) && is_width(size);
    const bool good = want == Kind::pointer ? have == KILN_ARG_POINTER && size == 8
                      : is_integer(want)    ? integer
                      : is_float(want)      ? have == KILN_ARG_FLOAT && (size == 4 || size == 8)
                                       : have == KILN_ARG_BYTES && types[i].size == arguments[i].type.size();
    if (good) continue;
    const std::string wanted = extra ? "i64" : arguments[i].type.to_string(manifest().parameters);
    fail(Errc::invalid_argument, "argument " + std::to_string(i) + " '" + name + "' is " + kind_name(have) +
                                     " of " + std::to_string(types[i].size) + " bytes, expected " + wanted);
  }
  checked_.store(call, std::memory_order_relaxed);
}

void LoadedKernel::store_argument(std::size_t i, kiln_arg_type type, const void* data,
                                  PreparedLaunch& out) const {
  const ArgumentSpec& spec = manifest().arguments[i];
  const auto slot = static_cast<std::size_t>(manifest().slots.argument_slot(static_cast<int>(i)));
  out.parameters[i] = &out.storage[i];
  switch (spec.type.kind) {
    case Kind::pointer: {
      std::uint64_t address = 0;
      std::memcpy(&address, data, sizeof address);
      out.storage[i] = address;
      out.slots[slot] = static_cast<std::int64_t>(address);
      return;
    }
    case Kind::f32:
    case Kind::f64: {
      double value = 0;
      float narrow = 0;
      if (type.size == 4)
        std::memcpy(&narrow, data, 4), value = narrow;
      else
        std::memcpy(&value, data, 8), narrow = static_cast<float>(value);
      if (spec.type.kind == Kind::f32)
        std::memcpy(&out.storage[i], &narrow, 4);
      else
        std::memcpy(&out.storage[i], &value, 8);
      return;
    }
    case Kind::structure:
    case Kind::tensormap:
      out.parameters[i] = const_cast<void*>(data);
      return;  // the driver copies, and does not write
    default: {
      const std::int64_t value = read_integer(type, data);
      const bool huge = type.kind == KILN_ARG_UNSIGNED && type.size == 8 && value < 0;
      if (!fits(spec.type.kind, value, huge)) {
        fail(Errc::invalid_argument,
             "argument '" + spec.name +
                 "' = " + (huge ? std::to_string(static_cast<std::uint64_t>(value)) : std::to_string(value)) +
                 " does not fit " + spec.type.to_string(manifest().parameters));
      }
      out.storage[i] = static_cast<std::uint64_t>(value);
      out.slots[slot] = value;
    }
  }
}

void LoadedKernel::store_default(std::size_t i, PreparedLaunch& out) const {
  const ArgumentSpec& spec = manifest().arguments[i];
  const auto slot = static_cast<std::size_t>(manifest().slots.argument_slot(static_cast<int>(i)));
  out.parameters[i] = &out.storage[i];
  out.storage[i] = 0;
  if (is_float(spec.type.kind)) {
    const double value = spec.float_value.value_or(0);
    const float narrow = static_cast<float>(value);
    if (spec.type.kind == Kind::f32)
      std::memcpy(&out.storage[i], &narrow, 4);
    else
      std::memcpy(&out.storage[i], &value, 8);
    return;
  }
  const std::int64_t value =
      spec.type.kind == Kind::pointer || spec.value.empty() ? 0 : spec.value.evaluate(out.slots);
  out.storage[i] = static_cast<std::uint64_t>(value);
  out.slots[slot] = value;
}

void LoadedKernel::store_defaults(std::size_t from, PreparedLaunch& out) const {
  const auto& arguments = manifest().arguments;
  for (std::size_t i = from; i < arguments.size(); ++i) {
    if (arguments[i].value.empty()) store_default(i, out);
  }
  for (const int slot : manifest().value_order) {  // a value may read an argument that comes later
    const int i = slot - manifest().slots.argument_slot(0);
    if (i >= static_cast<int>(from) && i < static_cast<int>(arguments.size()))
      store_default(static_cast<std::size_t>(i), out);
  }
}

void LoadedKernel::check_pointers(const PreparedLaunch& out) const {
  const auto& arguments = manifest().arguments;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const ArgumentSpec& a = arguments[i];
    if (a.type.kind != Kind::pointer || a.align.empty() || out.storage[i] == 0) continue;
    const std::int64_t align = a.align.evaluate(out.slots);
    if (align > 1 && out.storage[i] % static_cast<std::uint64_t>(align) != 0) {
      char address[32];
      std::snprintf(address, sizeof address, "0x%llx", static_cast<unsigned long long>(out.storage[i]));
      fail(Errc::requirement, "argument '" + a.name + "' = " + address + " is not aligned to " +
                                  std::to_string(align) + " bytes (" + a.align.text() + ")");
    }
  }
  for (const source::Requirement& r : manifest().requirements) {
    if (r.at_launch && r.expression.evaluate(out.slots) == 0) {
      fail(Errc::requirement,
           source::render_message(manifest(), r.message, out.slots) + " (" + r.expression.text() + ")");
    }
  }
}

void LoadedKernel::prepare(const kiln_arg_type* types, const void* const* data, std::size_t count,
                           PreparedLaunch& out) const {
  check_types(types, count);
  const auto total = static_cast<std::size_t>(manifest().slots.total());
  std::memcpy(out.slots.data(), base_slots_.data(), total * sizeof(std::int64_t));
  const std::size_t arguments = manifest().arguments.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (i < arguments)
      store_argument(i, types[i], data[i], out);
    else
      out.slots[static_cast<std::size_t>(manifest().slots.runtime_slot(static_cast<int>(i - arguments)))] =
          read_integer(types[i], data[i]);
  }
  if (count < arguments) store_defaults(count, out);
  check_pointers(out);
  out.config = {};
  set_geometry(out);
}

}  // namespace kiln::runtime
