#include "runtime/launch/loaded_kernel.hpp"

#include <algorithm>

#include "kiln/error.hpp"

namespace kiln::runtime {

using namespace toolchain;

namespace {

const source::Manifest& manifest_of(const source::Template& origin, base::Arch arch, std::size_t entry) {
  const source::Manifest& first = variant_for(origin.manifest, arch);
  return entry == 0 ? first : *first.entries.at(entry - 1);
}

const compile::EntryFacts& facts_of(const StoredImage& image, std::size_t entry) {
  return entry == 0 ? image.facts : image.facts.entries.at(entry - 1);
}

std::string name_of(const source::Resolved& resolved, const source::Manifest& manifest, std::size_t entry) {
  const std::string name = resolved.specialization.to_string();
  return entry == 0 ? name : name + ", kernel '" + manifest.entry + '\'';
}

const source::LaunchSpec& spec_of(const source::Manifest& manifest, source::Which which) noexcept {
  return which == source::Which::reference ? manifest.reference->launch : manifest.kernel.launch;
}

/// Values of the manifest's parameters, derives, exports, arch and device; the others are zero.
std::vector<std::int64_t> known_slots(const source::Manifest& manifest, const source::Resolved& resolved,
                                      const compile::Facts& facts, const DeviceFacts& device) {
  const source::SlotLayout& layout = manifest.slots;
  std::vector<std::int64_t> out = source::slots_of(manifest, resolved);
  for (const compile::ExportFact& constant : facts.exports) {
    const int slot = slot_index(manifest, constant.name);
    if (slot >= layout.export_slot(0) && slot < layout.arch_slot())
      out[static_cast<std::size_t>(slot)] = constant.value;
  }
  out[static_cast<std::size_t>(layout.sms_slot())] = device.sms;
  out[static_cast<std::size_t>(layout.smem_optin_slot())] = device.smem_optin;
  out[static_cast<std::size_t>(layout.l2_slot())] = device.l2;
  return out;
}

/// Describes entry point number `entry` of an image. REQUIRES: all arguments but `device` outlive the result.
KernelDescription describe(const source::Manifest& manifest, source::Which which,
                           const source::Resolved& resolved, const StoredImage& image, std::size_t entry,
                           const DeviceFacts& device) {
  const source::LaunchSpec& spec = spec_of(manifest, which);
  const compile::EntryFacts& facts = facts_of(image, entry);
  return {manifest, spec, facts, name_of(resolved, manifest, entry),
          LaunchRecipe(manifest, spec, known_slots(manifest, resolved, image.facts, device),
                       facts.shared_bytes, which)};
}

}  // namespace

LoadedKernel::LoadedKernel(const Driver& driver, const DeviceFacts& device,
                           std::shared_ptr<const source::Template> origin, source::Which which,
                           source::Resolved resolved, Obtained obtained,
                           std::shared_ptr<const Library> library, std::shared_ptr<FaultWords> faults,
                           std::size_t entry, const LoadedKernel* first)
    : origin_(std::move(origin)),
      resolved_(std::move(resolved)),
      obtained_(std::move(obtained)),
      library_(std::move(library)),
      faults_(std::move(faults)),
      function_(library_->function(entry)),
      kernel_(describe(manifest_of(*origin_, resolved_.arch, entry), which, resolved_, *obtained_.image,
                       entry, device)),
      arguments_(kernel_, driver),
      geometry_(kernel_, driver, function_),
      first_(first) {
  const std::size_t others = entry == 0 ? obtained_.image->facts.entries.size() : 0;
  for (std::size_t i = 1; i <= others; ++i) {
    entries_.push_back(std::make_unique<const LoadedKernel>(driver, device, origin_, which, resolved_,
                                                            obtained_, library_, faults_, i, this));
  }
}

const WorkListFacts& LoadedKernel::work_list() const {
  return work_list_.get(
      [&] { return work_list_facts(kernel_.manifest, *kernel_.manifest.work_list, fixed_slots()); });
}

const LoadedKernel& LoadedKernel::entry(std::string_view wanted) const {
  if (first_) return first_->entry(wanted);
  if (wanted == kernel_.manifest.entry) return *this;
  std::string known = kernel_.manifest.entry;
  for (const auto& other : entries_) {
    if (other->kernel_.manifest.entry == wanted) return *other;
    known += (known.empty() ? "" : ", ") + other->kernel_.manifest.entry;
  }
  kernel_.fail(Errc::invalid_argument,
               "has no [[kernel]] called '" + std::string(wanted) +
                   "'; it has: " + (known.empty() ? "none but the one that [template] names" : known));
}

Library::Global LoadedKernel::global(std::string_view wanted) const {
  const auto& globals = obtained_.image->facts.globals;
  std::string known;
  for (std::size_t i = 0; i < globals.size(); ++i) {
    if (globals[i].name == wanted) return library_->globals()[i];
    known += (i ? ", " : "") + globals[i].name;
  }
  kernel_.fail(Errc::invalid_argument, "has no [[global]] called '" + std::string(wanted) +
                                           "'; it has: " + (known.empty() ? "none" : known));
}

std::int64_t LoadedKernel::constant(std::string_view wanted) const {
  std::string known;
  for (const compile::ExportFact& constant : obtained_.image->facts.exports) {
    if (constant.name == wanted) return constant.value;
    known += (known.empty() ? "" : ", ") + constant.name;
  }
  kernel_.fail(Errc::invalid_argument, "has no [export] called '" + std::string(wanted) +
                                           "'; it has: " + (known.empty() ? "none" : known));
}

void LoadedKernel::prepare(const kiln_arg_type* types, const void* const* data, std::size_t count,
                           PreparedLaunch& out) const {
  process_.check(kernel_.name);
  arguments_.take(types, data, count, out);
  geometry_.set(out);
  if (!out.config.is_empty()) arguments_.pass(out);  // without blocks, nothing is passed
}

void LoadedKernel::launch(CUstream stream, const kiln_arg_type* types, const void* const* data,
                          std::size_t count) const {
  PreparedLaunch prepared;
  prepare(types, data, count, prepared);
  launch_prepared(stream, prepared);
}

void LoadedKernel::launch_raw(const kiln_launch_config& in, void** parameters) const {
  process_.check(kernel_.name);
  toolchain::LaunchConfig config;
  config.grid_x = in.grid[0], config.grid_y = in.grid[1], config.grid_z = in.grid[2];
  config.block_x = in.block[0], config.block_y = in.block[1], config.block_z = in.block[2];
  config.shared_bytes = in.shared_bytes;
  config.stream = in.stream;
  Extras extras;
  if (in.cluster[0])
    extras.cluster = {in.cluster[0], std::max(1u, in.cluster[1]), std::max(1u, in.cluster[2])};
  geometry_.allow(in.shared_bytes, extras.cluster[0] * extras.cluster[1] * extras.cluster[2]);
  extras.pdl = in.pdl != 0;
  extras.cooperative = in.cooperative != 0;
  std::array<LaunchAttribute, 3> attributes;
  extras.attach(attributes, config);
  geometry_.submit(config, parameters);
}

}  // namespace kiln::runtime
