#include "instantiate/resolve.hpp"

#include <algorithm>
#include <array>

#include "base/quote.hpp"
#include "base/text.hpp"
#include "instantiate/message.hpp"
#include "kiln/error.hpp"
#include "manifest/parameter_value.hpp"

namespace kiln::source {
namespace {

std::string shown(const Value& value) {
  switch (value.kind) {
    case Value::Kind::integer:
      return std::to_string(value.integer);
    case Value::Kind::boolean:
      return value.integer ? "true" : "false";
    case Value::Kind::dtype:
      if (value.integer < 0 || value.integer >= kDtypeCount)
        return "dtype number " + std::to_string(value.integer);
      return std::string(to_string(static_cast<Dtype>(value.integer)));
    case Value::Kind::text:
      return base::quote(value.text);
    default:
      return "nothing";
  }
}

std::optional<std::int64_t> accepted(const ParameterSpec& spec, const Value& value) {
  const auto of_kind = [&](ParameterKind kind) -> std::optional<std::int64_t> {
    if (spec.kind != kind || !parameter_allows(spec, value.integer)) return std::nullopt;
    return value.integer;
  };
  switch (value.kind) {
    case Value::Kind::integer:
      return of_kind(ParameterKind::integer);
    case Value::Kind::boolean:
      return of_kind(ParameterKind::boolean);
    case Value::Kind::dtype:
      return of_kind(ParameterKind::dtype);
    case Value::Kind::text:
      return parameter_value(spec, value.text);
    default:
      return std::nullopt;
  }
}

std::string parameter_of(const Manifest& manifest, const ParameterSpec& spec) {
  return "template " + base::quote(manifest.name) + ", parameter " + base::quote(spec.name);
}

void put_arch(const SlotLayout& layout, base::Arch arch, std::vector<std::int64_t>& slots) {
  const base::SmLimits sm = base::sm_limits_or_guess(arch);
  auto out = slots.begin() + layout.arch_slot();
  for (const std::int64_t fact : {static_cast<std::int64_t>(arch.number), std::int64_t{sm.shared_bytes},
                                  std::int64_t{sm.shared_opt_in}, std::int64_t{base::SmLimits::kRegisters}})
    *out++ = fact;
}

void check_arch(const Manifest& manifest, base::Arch arch) {
  if (supports(manifest, arch)) return;
  if (manifest.arch_min && arch.number < manifest.arch_min->number) {
    throw Error(Errc::unsupported_arch, "template " + base::quote(manifest.name) + " does not run on " +
                                            arch.name() + "; it needs " + manifest.arch_min->name() +
                                            " or newer");
  }
  if (manifest.arch_only.empty()) {
    throw Error(Errc::unsupported_arch,
                "template " + base::quote(manifest.name) + " cannot be compiled for " + arch.name() +
                    ": its manifest says that it needs " + std::string(to_string(manifest.features)) +
                    " features (arch = { features = ... } in [template]; without it, exact); use " +
                    base::Arch(arch.number).name());
  }
  std::vector<std::string> names;
  for (const base::Arch a : manifest.arch_only) names.push_back(a.name());
  throw Error(Errc::unsupported_arch, "template " + base::quote(manifest.name) + " does not run on " +
                                          arch.name() + "; it runs on: " + base::join(names, " "));
}

/// Adds template and `what` to the error of arithmetic that fails: the expression does not know them.
std::int64_t evaluate(const Manifest& manifest, const Expression& expression,
                      std::span<const std::int64_t> slots, const std::string& what) {
  try {
    return expression.evaluate(slots);
  } catch (const Error& error) {
    throw Error(error.code(), "template " + base::quote(manifest.name) + ", " + what + ": " + error.what());
  }
}

void check_default(const Manifest& manifest, const ParameterSpec& spec, std::int64_t value) {
  if (parameter_allows(spec, value)) return;
  throw Error(Errc::invalid_value, parameter_of(manifest, spec) + ": its default " +
                                       base::quote(spec.default_value.text()) + " gives " +
                                       std::to_string(value) + ", which is not allowed; allowed: " +
                                       allowed_values(spec) + "; give " + spec.name + " a value");
}

void check_requirements(const Manifest& manifest, const Resolved& resolved) {
  const std::vector<std::int64_t> slots = slots_of(manifest, resolved);
  for (const Requirement& requirement : manifest.requirements) {
    if (requirement.at_launch) continue;
    if (evaluate(manifest, requirement.expression, slots, "[[require]]") != 0) continue;
    throw Error(Errc::requirement, resolved.specialization.to_string() + " (" + resolved.arch.name() +
                                       "): " + render_message(manifest, requirement.message, slots) +
                                       " (required: " + requirement.expression.text() + ')');
  }
}

}  // namespace

std::vector<std::int64_t> slots_of(const Manifest& manifest, const Resolved& resolved) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(manifest.slots.total()));
  std::copy_n(resolved.slots.begin(), manifest.slots.argument_slot(0), out.begin());
  put_arch(manifest.slots, resolved.arch, out);
  return out;
}

Resolved resolve(const Manifest& base, std::span<const Value> values, base::Arch arch, Archs archs) {
  const Manifest& manifest = variant_for(base, arch);
  const std::size_t count = manifest.parameters.size();
  if (values.size() > count) {
    throw Error(Errc::invalid_argument, "template " + base::quote(manifest.name) + " takes " +
                                            std::to_string(count) + " parameters (" +
                                            base::join(parameter_names(manifest), " ") + "), not " +
                                            std::to_string(values.size()));
  }
  if (archs == Archs::supported) check_arch(base, arch);
  Resolved out;
  out.arch = arch;
  out.slots.assign(static_cast<std::size_t>(manifest.slots.total()), 0);
  put_arch(manifest.slots, arch, out.slots);
  const auto given = [&](std::size_t i) { return i < values.size() && values[i].kind != Value::Kind::unset; };
  for (std::size_t i = 0; i < count; ++i) {
    const ParameterSpec& spec = manifest.parameters[i];
    if (given(i)) {
      const auto value = accepted(spec, values[i]);
      if (!value) {
        throw Error(Errc::invalid_value, parameter_of(manifest, spec) + ": " + shown(values[i]) +
                                             " is not allowed; allowed: " + allowed_values(spec));
      }
      out.slots[i] = *value;
    } else if (spec.default_value.empty()) {
      throw Error(Errc::unknown_parameter,
                  parameter_of(manifest, spec) +
                      " has no default and was not given; allowed: " + allowed_values(spec));
    }
  }
  for (const int slot : manifest.resolve_order) {
    const auto i = static_cast<std::size_t>(slot);
    if (i >= count) {
      const auto& [name, expression] = manifest.derives[i - count];
      out.slots[i] = evaluate(manifest, expression, out.slots, "derive " + base::quote(name));
    } else if (!given(i)) {
      const ParameterSpec& spec = manifest.parameters[i];
      out.slots[i] =
          evaluate(manifest, spec.default_value, out.slots, "default of " + base::quote(spec.name));
      check_default(manifest, spec, out.slots[i]);
    }
  }
  out.specialization.template_name = manifest.name;
  for (std::size_t i = 0; i < count; ++i) {
    const ParameterSpec& spec = manifest.parameters[i];
    out.specialization.parameters.push_back({spec.name, parameter_text(spec, out.slots[i])});
  }
  check_requirements(manifest, out);
  for (const auto& entry : manifest.entries) check_requirements(*entry, out);
  return out;
}

namespace {

/// A hint for the name of the argument by which launches pick a member; empty for other names.
std::string family_hint(const Manifest& manifest, std::string_view name) {
  const auto& family = manifest.family;
  if (!family || manifest.arguments[static_cast<std::size_t>(family->by)].name != name) return "";
  return "; it is an argument of launches: " + summary(*family, manifest);
}

}  // namespace

std::vector<Value> positional(const Manifest& manifest, std::span<const NamedValue> named) {
  std::vector<Value> out(manifest.parameters.size());
  std::vector<bool> taken(out.size());
  for (const NamedValue& value : named) {
    const int index = parameter_index(manifest, value.name);
    if (index < 0) {
      const auto names = parameter_names(manifest);
      throw Error(Errc::unknown_parameter,
                  "template " + base::quote(manifest.name) + " has no parameter " + base::quote(value.name) +
                      base::did_you_mean(value.name, names) + "; it has: " +
                      (names.empty() ? "none" : base::join(names, " ")) + family_hint(manifest, value.name));
    }
    const auto i = static_cast<std::size_t>(index);
    if (taken[i])
      throw Error(Errc::unknown_parameter, "template " + base::quote(manifest.name) + ", parameter " +
                                               base::quote(value.name) + " is given twice");
    taken[i] = true;
    out[i] = value.value;
  }
  return out;
}

std::vector<NamedValue> parse_assignments(std::span<const std::string> pieces) {
  std::vector<NamedValue> out;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::string& piece = pieces[i];
    const auto equals = piece.find('=');
    if (equals == std::string::npos && i + 2 < pieces.size() && pieces[i + 1] == "=") {
      out.push_back({piece, Value(std::string_view(pieces[i += 2]))});
      continue;
    }
    if (equals == std::string::npos || equals == 0) {
      throw Error(Errc::invalid_argument,
                  base::quote(piece) + " is no parameter; expected NAME=VALUE, such as T=bf16");
    }
    const std::string_view text = piece;
    out.push_back({text.substr(0, equals), Value(text.substr(equals + 1))});
  }
  return out;
}

}  // namespace kiln::source
