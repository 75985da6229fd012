#include "tools/kiln/run/call_values.hpp"

#include <algorithm>
#include <charconv>

#include "base/text.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {

using Kind = source::ArgumentType::Kind;

namespace {

template <class T>
T parse_number(const std::string& name, const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw Error(Errc::invalid_value, "argument " + name + " = '" + text + "' is no number");
  }
  return value;
}

}  // namespace

CallValues::CallValues(const source::Manifest& manifest, const source::Resolved& resolved,
                       const toolchain::DeviceFacts& device, const GivenArguments& given,
                       const std::vector<compile::ExportFact>& exports)
    : manifest_(manifest), slots_(resolved.slots), known_(resolved.slots.size(), false) {
  const source::SlotLayout& layout = manifest_.slots;
  for (const compile::ExportFact& constant : exports)
    set_integer(static_cast<std::size_t>(slot_index(manifest_, constant.name)), constant.value);
  for (int i = 0; i < layout.argument_slot(0); ++i) known_[static_cast<std::size_t>(i)] = true;
  std::fill_n(known_.begin() + layout.arch_slot(), source::SlotLayout::kOfArch, true);
  set_integer(static_cast<std::size_t>(layout.sms_slot()), device.sms);
  set_integer(static_cast<std::size_t>(layout.smem_optin_slot()), device.smem_optin);
  set_integer(static_cast<std::size_t>(layout.l2_slot()), device.l2);
  resolve_arguments(given);
}

void CallValues::resolve_integer(const std::string& name, std::size_t slot, const source::Expression& value,
                                 const GivenArguments& given) {
  if (const auto found = given.find(name); found != given.end()) {
    set_integer(slot, parse_number<std::int64_t>(name, found->second));
  } else if (!value.empty()) {
    for (const int read : value.reads()) {
      if (!known_[static_cast<std::size_t>(read)]) return;  // needs a later value: resolved in the next pass
    }
    set_integer(slot, value.evaluate(slots_));
  }
}

void CallValues::resolve_arguments(const GivenArguments& given) {
  const auto& arguments = manifest_.arguments;
  const auto scalars = named_slots();
  std::vector<std::string> names;
  for (const auto& [name, slot] : scalars) names.push_back(name);
  for (const auto& [name, text] : given) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw Error(Errc::unknown_parameter,
                  "template '" + manifest_.name + "' has no parameter or scalar argument '" + name +
                      "'; arguments: " + base::join(names, ", ") + base::did_you_mean(name, names));
    }
  }
  floats_.assign(arguments.size(), 0.0);
  const source::SlotLayout& layout = manifest_.slots;
  // A default may use arguments that are declared later. Each pass settles at least one value, or no further
  // value can be settled.
  for (std::size_t pass = 0; pass < scalars.size() + 1; ++pass) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const auto slot = static_cast<std::size_t>(layout.argument_slot(static_cast<int>(i)));
      const source::ArgumentSpec& a = arguments[i];
      if (known_[slot]) continue;
      if (a.type.kind == Kind::structure || a.type.kind == Kind::tensormap) {
        throw Error(
            Errc::invalid_argument,
            "argument '" + a.name + "' of template '" + manifest_.name + "' is a " +
                a.type.to_string(manifest_.parameters) +
                ", which only a program can make: launch it with Kernel::operator() of kiln/kernel.hpp");
      }
      if (a.type.kind == Kind::pointer) {
        set_integer(slot, 0);  // until the buffer exists; only `require` and `align` read it
      } else if (a.type.is_float()) {
        const auto found = given.find(a.name);
        floats_[i] =
            found != given.end() ? parse_number<double>(a.name, found->second) : a.float_value.value_or(0);
        set_integer(slot, source::away_from_zero(floats_[i]));
      } else {
        resolve_integer(a.name, slot, a.value, given);
      }
    }
    for (const auto* values : {&manifest_.runtime, &manifest_.run_values}) {
      for (const source::RuntimeValueSpec& value : *values) {
        const auto slot = static_cast<std::size_t>(slot_index(manifest_, value.name));
        if (!known_[slot]) resolve_integer(value.name, slot, value.value, given);
      }
    }
  }
  for (const auto& [name, slot] : scalars) {
    if (!known_[slot])
      throw Error(Errc::invalid_value, "argument '" + name + "' has no default: give " + name + "=VALUE");
  }
}

std::vector<std::pair<std::string, std::size_t>> CallValues::named_slots() const {
  std::vector<std::pair<std::string, std::size_t>> out;
  const auto add = [&](const std::string& name) {
    out.emplace_back(name, static_cast<std::size_t>(slot_index(manifest_, name)));
  };
  for (const auto& a : manifest_.arguments) {
    if (a.type.kind != Kind::pointer) add(a.name);
  }
  for (const auto* values : {&manifest_.runtime, &manifest_.run_values}) {
    for (const source::RuntimeValueSpec& value : *values) add(value.name);
  }
  return out;
}

std::vector<Parameter> CallValues::texts() const {
  std::vector<Parameter> out;
  const auto& arguments = manifest_.arguments;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].type.kind == Kind::pointer) continue;
    const auto slot = static_cast<std::size_t>(manifest_.slots.argument_slot(static_cast<int>(i)));
    out.push_back({arguments[i].name,
                   arguments[i].type.is_float() ? base::decimal(floats_[i]) : std::to_string(slots_[slot])});
  }
  for (const auto* values : {&manifest_.runtime, &manifest_.run_values}) {
    for (const source::RuntimeValueSpec& value : *values)
      out.push_back(
          {value.name, std::to_string(slots_[static_cast<std::size_t>(slot_index(manifest_, value.name))])});
  }
  return out;
}

}  // namespace kiln::cli
