#include "runtime/tuned/call.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "instantiate/stricter.hpp"
#include "instantiate/tune.hpp"
#include "kiln/error.hpp"
#include "runtime/tuned/pinned_choices.hpp"

namespace kiln::runtime {
namespace {

/// The name under which the answer is pinned. It names no source file's content, so that an edit under a
/// running process changes nothing, either.
std::string call_name(const source::Template& origin, const source::Resolved& plain,
                      const std::vector<std::size_t>& free, const std::string& device) {
  std::string out = plain.specialization.to_string();
  for (const std::size_t i : free) out += '\0' + std::to_string(i);
  return out + '\0' + plain.arch.name() + '\0' + device + '\0' + origin.digest.hex();
}

bool names(const std::vector<std::string>& all, const std::string& name) {
  return std::find(all.begin(), all.end(), name) != all.end();
}

std::string value_in(const source::Resolved& resolved, const std::string& name) {
  for (const Parameter& p : resolved.specialization.parameters)
    if (p.name == name) return p.value;
  return {};
}

/// The parameters that a trace row must name as tuned: the free ones, and parameters whose
/// defaults follow them.
std::vector<std::string> open_in(const source::Manifest& manifest, std::span<const Value> values,
                                 const std::vector<std::size_t>& free, const source::Resolved& plain,
                                 const source::Resolved& resolved) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i) {
    const std::string& name = manifest.parameters[i].name;
    const bool given = i < values.size() && values[i].kind != Value::Kind::unset;
    const bool follows = !given && value_in(plain, name) != value_in(resolved, name);
    if (follows || std::find(free.begin(), free.end(), i) != free.end()) out.push_back(name);
  }
  return out;
}

/// All parameters that a call leaves to their defaults.
std::vector<std::string> not_given(const source::Manifest& manifest, std::span<const Value> values) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < manifest.parameters.size(); ++i)
    if (i >= values.size() || values[i].kind == Value::Kind::unset)
      out.push_back(manifest.parameters[i].name);
  return out;
}

/// The reason why a choice cannot be taken; empty when it can.
std::string objection(const source::Manifest& manifest, std::span<const Value> values,
                      const source::Resolved& plain, const std::vector<Parameter>& chosen) {
  const auto given = source::with_choice(variant_for(manifest, plain.arch), values, chosen);
  if (!given) return "the manifest does not allow its values";
  try {
    return source::stricter(variant_for(manifest, plain.arch), plain,
                            source::resolve(manifest, *given, plain.arch));
  } catch (const Error& error) {
    return error.what();
  }
}

/// The choice for a call. Nothing when a store could not be asked. `read` becomes the files of the call
/// without a choice.
std::optional<PinnedChoice> look_for(Files& files, Choices& choices,
                                     const std::shared_ptr<const source::Template>& origin,
                                     std::span<const Value> values, const source::Resolved& plain,
                                     const std::vector<std::size_t>& free, const std::string& device,
                                     base::Deadline deadline, std::shared_ptr<const KeyedFiles>& read) try {
  if (!choices.may_ask()) return std::nullopt;
  const source::Instantiation unit = source::instantiate(origin, plain);
  read = std::make_shared<const KeyedFiles>(files.read(unit, source::Trust::memo));
  const Choices::Answer answer = choices.find(Choices::key_of(unit, free, device, *read), deadline);
  if (!answer.found) return answer.sure ? std::optional(PinnedChoice{}) : std::nullopt;
  const compile::TunedChoice& choice = answer.found->choice;
  const std::string why = objection(origin->manifest, values, plain, choice.chosen);
  if (why.empty()) return PinnedChoice{choice.chosen, answer.found->key};
  base::warn_once(
      "choice " + answer.found->key.hex(),
      "the tuned choice for " + choice.label() + " is not used: " + why + "; tune it again with 'kiln tune'");
  return PinnedChoice{};
} catch (const std::exception& error) {  // a later compile reports what is wrong with the source
  base::debug("no tuned choice was looked for: " + std::string(error.what()));
  return std::nullopt;
}

}  // namespace

TunedCall resolve_tuned(Files& files, Choices& choices, const std::shared_ptr<const source::Template>& origin,
                        std::span<const Value> values, base::Arch arch, const std::string& device,
                        source::Archs archs, Disk disk, base::Deadline deadline) {
  const source::Manifest& manifest = origin->manifest;
  TunedCall out;
  out.resolved = source::resolve(manifest, values, arch, archs);
  if (!source::supports(manifest, arch)) return out;
  const std::vector<std::size_t> free = source::free_to_tune(variant_for(manifest, arch), values);
  if (free.empty()) return out;
  const source::Resolved plain = out.resolved;
  if (!device.empty()) {
    const std::string call = call_name(*origin, plain, free, device);
    const PinnedChoice* pinned = pinned_choice(call);
    if (!pinned && disk == Disk::asked) {
      if (auto looked = look_for(files, choices, origin, values, plain, free, device, deadline, out.files))
        pinned = &pin_choice(call, std::move(*looked));
    }
    if (!pinned) {
      out.undecided = call;
      out.resolved.undecided = true, out.resolved.open = not_given(variant_for(manifest, arch), values);
      return out;
    }
    if (!pinned->chosen.empty()) {
      const auto given = source::with_choice(variant_for(manifest, arch), values, pinned->chosen);
      out.resolved = source::resolve(manifest, given.value(), arch, archs);
      out.tuned = pinned->chosen, out.files = nullptr;
      out.choice = pinned->key;
    }
  }
  out.resolved.open = open_in(variant_for(manifest, arch), values, free, plain, out.resolved);
  return out;
}

std::optional<RecordedCall> recorded_call(const source::Template& origin, std::span<const Value> values,
                                          const std::vector<std::string>& tuned, base::Arch arch) {
  const source::Manifest& manifest = origin.manifest;
  if (tuned.empty() || !source::supports(manifest, arch)) return std::nullopt;
  const source::Resolved recorded = source::resolve(manifest, values, arch);
  RecordedCall out;
  out.call.assign(values.begin(), values.end());
  for (std::size_t i = 0; i < out.call.size(); ++i)
    if (names(tuned, manifest.parameters[i].name)) out.call[i] = Value();
  out.free = source::free_to_tune(variant_for(manifest, arch), out.call);
  if (out.free.empty()) return std::nullopt;
  for (const std::size_t i : out.free) {
    const Parameter& p = recorded.specialization.parameters[i];
    if (!names(tuned, p.name)) return std::nullopt;
    out.chosen.push_back(p);
  }
  out.plain = source::resolve(manifest, out.call, arch);
  if (!objection(manifest, out.call, out.plain, out.chosen).empty()) return std::nullopt;
  const auto given = source::with_choice(variant_for(manifest, arch), out.call, out.chosen);
  if (source::resolve(manifest, given.value(), arch).specialization != recorded.specialization)
    return std::nullopt;
  return out;
}

bool pin_recorded(const source::Template& origin, const RecordedCall& recorded, const std::string& device) {
  const PinnedChoice& pinned =
      pin_choice(call_name(origin, recorded.plain, recorded.free, device), {recorded.chosen, std::nullopt});
  return pinned.chosen == recorded.chosen;
}

}  // namespace kiln::runtime
