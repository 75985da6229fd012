#include "source/braces.hpp"
#include "source/instantiate.hpp"
#include "source/parameter_value.hpp"

namespace kiln::source {
namespace {

bool is_pointer(const Manifest& manifest, int slot) {
  const int i = slot - manifest.slots.argument_slot(0);
  return i >= 0 && i < manifest.slots.arguments &&
         manifest.arguments[static_cast<std::size_t>(i)].type.kind == ArgumentType::Kind::pointer;
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
                           std::span<const std::int64_t> slots) {
  return fill_braces(message, [&](const std::string& name) -> std::string {
    const int slot = manifest.slot_index(name);
    if (slot < 0 || static_cast<std::size_t>(slot) >= slots.size()) return '{' + name + '}';
    const std::int64_t value = slots[static_cast<std::size_t>(slot)];
    if (slot < manifest.slots.parameters)
      return parameter_text(manifest.parameters[static_cast<std::size_t>(slot)], value);
    return is_pointer(manifest, slot) ? hexadecimal(value) : std::to_string(value);
  });
}

}  // namespace kiln::source
