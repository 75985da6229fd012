#include "tools/kiln/inspect/launch_shape.hpp"

#include <algorithm>
#include <cmath>

#include "instantiate/instantiate.hpp"
#include "kiln/error.hpp"

namespace kiln::cli {
namespace {

using Threads = LaunchShape::Threads;
using toolchain::Occupancy;

/// Evaluates expressions of the manifest from the values that parameters, arch and exports decide.
class KnownAtCompile {
 public:
  KnownAtCompile(const source::Manifest& manifest, const source::Resolved& resolved,
                 const std::vector<compile::ExportFact>& exports)
      : slots_(source::slots_of(manifest, resolved)), known_(slots_.size(), false) {
    const source::SlotLayout& layout = manifest.slots;
    std::fill_n(known_.begin(), layout.parameters + layout.derives, true);
    std::fill_n(known_.begin() + layout.arch_slot(), source::SlotLayout::kOfArch, true);
    for (const compile::ExportFact& constant : exports) {
      const int slot = slot_index(manifest, constant.name);
      if (slot < 0) continue;  // the manifest has changed since
      slots_[static_cast<std::size_t>(slot)] = constant.value;
      known_[static_cast<std::size_t>(slot)] = true;
    }
  }
  std::optional<std::int64_t> value(const source::Expression& expression) const {
    return expression.folded(slots_, known_).constant_value();
  }

 private:
  std::vector<std::int64_t> slots_;
  std::vector<bool> known_;
};

void take_from_manifest(source::Catalog& catalog, const compile::Facts& facts, LaunchShape& out) {
  const auto at = facts.unit.find('@');
  const auto origin = catalog.open(facts.unit.substr(0, at));
  const base::Arch arch = base::Arch::parse(facts.arch);
  const source::Manifest& manifest = variant_for(origin->manifest, arch);
  if (at != std::string::npos && !manifest.reference) return;
  std::vector<NamedValue> named;
  for (const Parameter& p : facts.parameters) named.push_back({p.name, Value(p.value)});
  const auto resolved = source::resolve(origin->manifest, source::positional(manifest, named), arch);
  const source::LaunchSpec& launch =
      at == std::string::npos ? manifest.kernel.launch : manifest.reference->launch;
  const KnownAtCompile known(manifest, resolved, facts.exports);
  std::int64_t threads = 1;
  for (const source::Expression& dimension : launch.block) {
    const auto value = known.value(dimension);
    threads = value && *value > 0 && *value <= 1024 ? threads * *value : 0;
  }
  if (threads > 0 && threads <= 1024 && out.from != Threads::required)
    out.from = Threads::manifest, out.threads = static_cast<std::uint32_t>(threads);
  const auto shared = launch.smem.empty() ? std::optional<std::int64_t>(0) : known.value(launch.smem);
  if (shared && *shared >= 0) out.dynamic_shared = static_cast<std::uint64_t>(*shared);
}

const char* resource(Occupancy::Limit limit) {
  switch (limit) {
    case Occupancy::Limit::warps:
      return "warps";
    case Occupancy::Limit::blocks:
      return "blocks";
    case Occupancy::Limit::registers:
      return "registers";
    case Occupancy::Limit::shared:
      return "shared memory";
  }
  return "";
}

}  // namespace

LaunchShape launch_shape(source::Catalog& catalog, const compile::Facts& facts) {
  LaunchShape out;
  const auto& required = facts.required_block;
  if (required[0] > 0)
    out.from = Threads::required,
    out.threads = required[0] * std::max(required[1], 1u) * std::max(required[2], 1u);
  try {
    take_from_manifest(catalog, facts, out);
  } catch (const Error&) {  // the template is gone or no longer matches
  }
  if (out.from == Threads::unknown && facts.max_threads > 0)
    out.from = Threads::most, out.threads = facts.max_threads;
  return out;
}

std::optional<Occupancy> occupancy_of(const compile::Facts& facts, const LaunchShape& shape) {
  try {
    return toolchain::occupancy(base::Arch::parse(facts.arch), facts.registers,
                                facts.shared_bytes + shape.dynamic_shared.value_or(0), shape.threads);
  } catch (const Error&) {  // the arch of another version of kiln
    return std::nullopt;
  }
}

std::string occupancy_text(const compile::Facts& facts, const LaunchShape& shape) {
  const auto occupancy = occupancy_of(facts, shape);
  if (!occupancy)
    return shape.threads == 0 ? "not known: how many threads a block has depends on the launch"
                              : "not known for " + facts.arch;
  const std::string block =
      shape.from == Threads::required ? "the " + counted(shape.threads, "thread") + " that it requires"
      : shape.from == Threads::most   ? "its most, " + counted(shape.threads, "thread") + " a block"
                                      : counted(shape.threads, "thread") + " a block";
  std::string out = counted(static_cast<std::uint64_t>(occupancy->blocks), "block") + " an SM, " +
                    std::to_string(std::lround(100 * occupancy->fraction())) + " % of its warps (" +
                    std::to_string(occupancy->warps) + " of " + std::to_string(occupancy->most_warps) +
                    "), at " + block + "; limited by " + resource(occupancy->limit);
  if (!shape.dynamic_shared)
    out += "; only static shared memory is counted, as the rest depends on the launch";
  return out;
}

Json occupancy_json(const compile::Facts& facts, const LaunchShape& shape) {
  const auto occupancy = occupancy_of(facts, shape);
  if (!occupancy) return nullptr;
  static constexpr const char* from[] = {"required", "manifest", "most", "unknown"};
  return {{"threads", shape.threads},
          {"threads_from", from[static_cast<int>(shape.from)]},
          {"dynamic_shared_bytes", shape.dynamic_shared ? Json(*shape.dynamic_shared) : Json(nullptr)},
          {"blocks", occupancy->blocks},
          {"warps", occupancy->warps},
          {"most_warps", occupancy->most_warps},
          {"limited_by", resource(occupancy->limit)}};
}

}  // namespace kiln::cli
