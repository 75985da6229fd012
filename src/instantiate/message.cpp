#include "instantiate/message.hpp"

#include "base/text.hpp"
#include "expression/braces.hpp"
#include "manifest/parameter_value.hpp"

namespace kiln::source {
namespace {

/// Null when `i` is not the index of an argument.
const ArgumentType* argument_type(const Manifest& manifest, std::size_t i) {
  return i < manifest.arguments.size() ? &manifest.arguments[i].type : nullptr;
}

std::string hexadecimal(std::int64_t value) {
  std::string digits;
  for (auto bits = static_cast<std::uint64_t>(value); bits || digits.empty(); bits >>= 4) {
    digits += "0123456789abcdef"[bits & 15];
  }
  return "0x" + std::string(digits.rbegin(), digits.rend());
}

}  // namespace

std::string render_message(const Manifest& manifest, std::string_view message,
                           std::span<const std::int64_t> slots, std::span<const double> floats) {
  return fill_braces(message, [&](const std::string& name) -> std::string {
    const int slot = slot_index(manifest, name);
    if (slot < 0 || static_cast<std::size_t>(slot) >= slots.size()) return '{' + name + '}';
    const std::int64_t value = slots[static_cast<std::size_t>(slot)];
    if (slot < manifest.slots.parameters)
      return parameter_text(manifest.parameters[static_cast<std::size_t>(slot)], value);
    // A derive's slot lies before the arguments: it wraps to a huge index.
    const auto i = static_cast<std::size_t>(slot - manifest.slots.argument_slot(0));
    const ArgumentType* type = argument_type(manifest, i);
    if (type && type->is_float() && i < floats.size()) return base::decimal(floats[i]);
    return type && type->kind == ArgumentType::Kind::pointer ? hexadecimal(value) : std::to_string(value);
  });
}

}  // namespace kiln::source
