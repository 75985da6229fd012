#include "runtime/tuned_call.hpp"

#include "base/log.hpp"
#include "runtime/pinned_choices.hpp"
#include "source/tune.hpp"

namespace kiln::runtime {
namespace {

/// What the answer is pinned under: names no file's content, so that an edit under a running process changes
/// nothing, either.
std::string call_name(const source::Template& origin, const source::Resolved& plain,
                      const std::vector<std::size_t>& free, const std::string& device) {
  std::string out = plain.specialization.to_string();
  for (const std::size_t i : free) out += '\0' + std::to_string(i);
  return out + '\0' + plain.arch.name() + '\0' + device + '\0' + origin.digest.hex();
}

PinnedChoice look_for(Pipeline& pipeline, const std::shared_ptr<const source::Template>& origin,
                      std::span<const Value> values, const source::Resolved& plain,
                      const std::vector<std::size_t>& free, const std::string& device,
                      base::Deadline deadline) try {
  const source::Instantiation unit = source::instantiate(origin, plain);
  const auto found = pipeline.find_choice(pipeline.choice_key(unit, free, device), deadline);
  if (!found) return {};
  const auto refuse = [&](const std::string& why) {
    base::warn_once("choice " + found->key.hex(), "the tuned choice for " + found->choice.label() +
                                                      " is not used: " + why +
                                                      "; tune it again with 'kiln tune'");
    return PinnedChoice{};
  };
  const source::Manifest& manifest = origin->manifest;
  const auto given = source::with_choice(manifest.on(plain.arch), values, found->choice.chosen);
  if (!given) return refuse("its values are none that the manifest allows");
  try {
    source::resolve(manifest, *given, plain.arch);
  } catch (const Error& error) {
    return refuse(error.what());
  }
  return {found->choice.chosen, found->key};
} catch (const std::exception& error) {  // whoever goes on to compile is told what is wrong with the source
  base::debug("no tuned choice was looked for: " + std::string(error.what()));
  return {};
}

}  // namespace

TunedCall resolve_tuned(Pipeline& pipeline, const std::shared_ptr<const source::Template>& origin,
                        std::span<const Value> values, base::Arch arch, const std::string& device,
                        source::Archs archs, Disk disk, base::Deadline deadline) {
  const source::Manifest& manifest = origin->manifest;
  TunedCall out;
  out.resolved = source::resolve(manifest, values, arch, archs);
  if (device.empty() || !source::supports(manifest, arch)) return out;
  const std::vector<std::size_t> free = source::free_to_tune(manifest.on(arch), values);
  if (free.empty()) return out;
  const std::string call = call_name(*origin, out.resolved, free, device);
  const PinnedChoice* pinned = pinned_choice(call);
  if (!pinned && disk == Disk::left_alone) return out;
  if (!pinned)
    pinned = &pin_choice(call, look_for(pipeline, origin, values, out.resolved, free, device, deadline));
  if (pinned->chosen.empty()) return out;
  const auto given = source::with_choice(manifest.on(arch), values, pinned->chosen);
  out.resolved = source::resolve(manifest, given.value(), arch, archs);
  out.tuned = pinned->chosen;
  out.choice = pinned->key;
  return out;
}

}  // namespace kiln::runtime
