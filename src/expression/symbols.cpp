#include "expression/symbols.hpp"

namespace kiln::source {
namespace {

/// The value for `name` in the first layer that has it, from `top` down. The search ends at a layer where the
/// name may not be used.
template <class Value>
const Value* find_in_layers(const Symbols& top, Symbols::Map<Value> Symbols::*map, std::string_view name) {
  for (const Symbols* layer = &top; layer; layer = layer->below) {
    if (const auto found = (layer->*map).find(name); found != (layer->*map).end()) return &found->second;
    if (layer->unavailable.contains(name)) return nullptr;
  }
  return nullptr;
}

bool is_in_layers(const Symbols& top, std::set<std::string, std::less<>> Symbols::*set,
                  std::string_view name) {
  for (const Symbols* layer = &top; layer; layer = layer->below) {
    if ((layer->*set).contains(name)) return true;
  }
  return false;
}

template <class Value>
std::vector<std::string> names_in_layers(const Symbols& top, Symbols::Map<Value> Symbols::*map) {
  std::set<std::string> out;
  for (const Symbols* layer = &top; layer; layer = layer->below) {
    for (const auto& [name, value] : layer->*map) {
      if (find_in_layers(top, map, name)) out.insert(name);
    }
  }
  return {out.begin(), out.end()};
}

}  // namespace

const int* Symbols::slot(std::string_view name) const noexcept {
  return find_in_layers(*this, &Symbols::slots, name);
}
const std::int64_t* Symbols::constant(std::string_view name) const noexcept {
  return find_in_layers(*this, &Symbols::constants, name);
}
const std::vector<std::string>* Symbols::strides_of(std::string_view name) const noexcept {
  return find_in_layers(*this, &Symbols::strides, name);
}
bool Symbols::is_dtype(std::string_view name) const noexcept {
  return is_in_layers(*this, &Symbols::dtypes, name);
}
bool Symbols::is_pointer(std::string_view name) const noexcept {
  return is_in_layers(*this, &Symbols::pointers, name);
}

std::optional<std::string> Symbols::why_unavailable(std::string_view name) const {
  if (slot(name) || constant(name)) return std::nullopt;
  for (const Symbols* layer = this; layer; layer = layer->below) {
    if (const auto found = layer->unavailable.find(name); found != layer->unavailable.end())
      return found->second;
    if (!layer->later) continue;
    if (layer->later->slot(name)) return "it is known only when the kernel is launched";
    // The later layer stands on this one, so only its own map is searched.
    if (const auto found = layer->later->unavailable.find(name); found != layer->later->unavailable.end())
      return found->second;
  }
  return std::nullopt;
}

std::vector<std::string> Symbols::slot_names() const { return names_in_layers(*this, &Symbols::slots); }
std::vector<std::string> Symbols::constant_names() const {
  return names_in_layers(*this, &Symbols::constants);
}

}  // namespace kiln::source
