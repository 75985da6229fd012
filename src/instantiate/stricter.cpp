#include "instantiate/stricter.hpp"

#include <algorithm>
#include <cstdint>
#include <random>

#include "kiln/error.hpp"

namespace kiln::source {
namespace {

// Random launches that are tried when the rules above decide nothing. They take 0.1 ms of the first get of a
// kernel with a choice.
constexpr int kTries = 512;

/// An expression folded for one specialisation: only values of a launch are still open.
struct Folded {
  std::vector<std::int64_t> slots;
  Expression expression;

  Folded(const Manifest& manifest, const Resolved& resolved, const Expression& of)
      : slots(slots_of(manifest, resolved)) {
    std::vector<bool> known(slots.size(), false);
    for (int i = 0; i < manifest.slots.argument_slot(0); ++i) known[static_cast<std::size_t>(i)] = true;
    std::fill_n(known.begin() + manifest.slots.arch_slot(), SlotLayout::kOfArch, true);
    expression = of.folded(slots, known);
  }
  /// The expression's value for a launch; nothing when its arithmetic fails.
  std::optional<std::int64_t> at(const std::vector<std::int64_t>& launch) const try {
    return expression.evaluate(launch);
  } catch (const Error&) {
    return std::nullopt;
  }
};

/// A random number of the kind that launches have as sizes, counts, strides and addresses.
std::int64_t some_number(std::mt19937_64& random) {
  const std::uint64_t bits = random() % 33;
  const auto power = static_cast<std::int64_t>(std::uint64_t{1} << bits);
  switch (random() % 4) {
    case 0:
      return static_cast<std::int64_t>(random() % 9);
    case 1:
      return power + static_cast<std::int64_t>(random() % 3) - 1;
    case 2:
      return power * static_cast<std::int64_t>(1 + random() % 9);
    default:
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(power));
  }
}

/// The kind of rule that is compared: a [[require]], or the alignment of a pointer.
enum class Rule { require, align };

bool takes_less(Rule rule, std::optional<std::int64_t> plain, std::optional<std::int64_t> candidate) {
  if (!plain) return false;  // the default does not accept this launch either
  if (rule == Rule::require) return *plain != 0 && candidate.value_or(0) == 0;
  return !candidate || *candidate <= 0 || *plain % *candidate != 0;
}

/// True when every parameter or derive that `of` reads has a value that divides the default's value.
bool divides(const Manifest& manifest, const Expression& of, const Folded& plain, const Folded& candidate) {
  return std::all_of(of.reads().begin(), of.reads().end(), [&](int slot) {
    if (slot >= manifest.slots.argument_slot(0)) return true;
    const std::int64_t ours = plain.slots[static_cast<std::size_t>(slot)],
                       theirs = candidate.slots[static_cast<std::size_t>(slot)];
    return ours == theirs || (theirs > 0 && ours >= theirs && ours % theirs == 0);
  });
}

bool is_stricter(const Manifest& manifest, Rule rule, const Expression& of, const Resolved& by_default,
                 const Resolved& other) {
  const Folded plain(manifest, by_default, of), candidate(manifest, other, of);
  if (plain.expression.same_code(candidate.expression)) return false;
  const auto always = candidate.expression.constant_value(), was = plain.expression.constant_value();
  if (rule == Rule::require && always && *always != 0) return false;
  if (always && was) return takes_less(rule, was, always);
  if (!divides(manifest, of, plain, candidate)) return true;
  std::mt19937_64 random(1);
  std::vector<std::int64_t> launch = plain.slots;
  for (int i = 0; i < kTries; ++i) {
    for (const int slot : of.reads())
      if (slot >= manifest.slots.argument_slot(0) && !manifest.slots.is_of_arch(slot))
        launch[static_cast<std::size_t>(slot)] = some_number(random);
    if (takes_less(rule, plain.at(launch), candidate.at(launch))) return true;
  }
  return false;
}

std::string stricter_in(const Manifest& manifest, const Resolved& plain, const Resolved& candidate) {
  for (const Requirement& r : manifest.requirements)
    if (r.at_launch && is_stricter(manifest, Rule::require, r.expression, plain, candidate))
      return "stricter than the default: a launch that the default accepts may break [[require]] " +
             r.expression.text();
  for (const ArgumentSpec& a : manifest.arguments)
    if (!a.align.empty() && is_stricter(manifest, Rule::align, a.align, plain, candidate))
      return "stricter than the default: argument '" + a.name + "' must be aligned to " + a.align.text() +
             ", which is more";
  return {};
}

}  // namespace

std::string stricter(const Manifest& manifest, const Resolved& plain, const Resolved& candidate) {
  if (plain.specialization == candidate.specialization) return {};
  std::string out = stricter_in(manifest, plain, candidate);
  for (const auto& entry : manifest.entries)
    if (out.empty()) out = stricter_in(*entry, plain, candidate);
  return out;
}

}  // namespace kiln::source
