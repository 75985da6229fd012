#include "tools/kiln/lint/image.hpp"
#include "tools/kiln/lint/lines.hpp"

#include <array>
#include <cstdint>
#include <optional>

#include "base/text.hpp"
#include "runtime/launch/tensor_map.hpp"
#include "tools/kiln/cli/output.hpp"
#include "tools/kiln/lint/debris.hpp"

namespace kiln::cli {
namespace {

using Shape = std::array<std::uint32_t, 3>;

std::string text_of(const Shape& shape) {
  return std::to_string(shape[0]) + " x " + std::to_string(std::max(shape[1], 1u)) + " x " +
         std::to_string(std::max(shape[2], 1u));
}

/// The slots whose values an image and its specialisation decide: parameters, derives, arch and exports.
struct Known {
  std::vector<std::int64_t> slots;
  std::vector<bool> known;

  Known(const source::Manifest& m, const source::Resolved& resolved, const compile::Facts& facts)
      : slots(source::slots_of(m, resolved)), known(slots.size(), false) {
    std::fill_n(known.begin(), m.slots.parameters + m.slots.derives, true);
    std::fill_n(known.begin() + m.slots.arch_slot(), source::SlotLayout::kOfArch, true);
    for (std::size_t i = 0; i < m.exports.size() && i < facts.exports.size(); ++i) {
      const auto slot = static_cast<std::size_t>(m.slots.export_slot(static_cast<int>(i)));
      slots[slot] = facts.exports[i].value, known[slot] = true;
    }
  }
  source::Expression folded(const source::Expression& e) const { return e.folded(slots, known); }
};

/// The shape when parameters, arch and exports decide all its dimensions, else nothing.
std::optional<Shape> constant_shape(const Known& known, const std::vector<source::Expression>& dimensions) {
  Shape out{1, 1, 1};
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    const auto value = known.folded(dimensions[i]).constant_value();
    if (!value || *value < 1 || *value > UINT32_MAX) return std::nullopt;
    out[i] = static_cast<std::uint32_t>(*value);
  }
  return out;
}

class ImageLint {
 public:
  ImageLint(const source::Manifest& manifest, const source::Resolved& resolved, const compile::Facts& facts,
            const ManifestLines& lines)
      : manifest_(manifest), resolved_(resolved), facts_(facts), lines_(lines) {}

  LintFindings run(std::string_view image, const std::vector<std::string>& foreign) {
    entry(manifest_, facts_);
    for (const compile::EntryFacts& other : facts_.entries)
      if (const source::Manifest* m = entry_named(manifest_, other.entry)) entry(*m, other);
    debris(image, foreign);
    return std::move(out_);
  }

 private:
  void add(const char* id, Severity severity, std::string place, const std::string& text) {
    out_.push_back({id, severity, manifest_.name, std::move(place),
                    facts_.specialization().to_string() + " for " + facts_.arch + ": " + text});
  }

  void entry(const source::Manifest& m, const compile::EntryFacts& facts) {
    arguments(m, facts);
    const Known known(m, resolved_, facts_);
    tensor_maps(m, known);
    block(m, known, facts);
    cluster(m, known, facts);
    if (const std::uint64_t spills = facts.spill_bytes();
        spills > static_cast<std::uint64_t>(m.limits.max_spill_bytes.value_or(0)))
      add("spills", m.limits.max_spill_bytes ? Severity::warning : Severity::note, lines_.of({"limits"}),
          human_bytes(spills) + " of registers are spilled" +
              (m.limits.max_spill_bytes ? ", but [limits] allows " + human_bytes(static_cast<std::uint64_t>(
                                                                         *m.limits.max_spill_bytes))
                                        : "") +
              ": keep fewer values live, or allow fewer threads with __launch_bounds__");
    if (static_cast<std::int64_t>(facts.performance_warnings.size()) >
        m.limits.performance_warnings.value_or(0))
      add("performance-warnings", Severity::warning, lines_.entry(m.entry),
          "ptxas warns: " + base::join(facts.performance_warnings, "; "));
  }

  void arguments(const source::Manifest& m, const compile::EntryFacts& facts) {
    const auto& declared = m.passed;
    const auto& real = facts.arguments;
    std::vector<std::string> sizes;
    for (const compile::ArgumentFact& argument : real) sizes.push_back(std::to_string(argument.size));
    const std::string kernel = "the kernel takes " + counted(real.size(), "argument") +
                               (real.empty() ? "" : " of " + base::join(sizes, ", ") + " bytes");
    if (declared.empty() && !real.empty())
      return add(
          "argument-layout", Severity::warning, lines_.entry(m.entry),
          kernel + ", but the manifest declares none, so nothing can launch it: add one [[arg]] for each");
    if (declared.size() != real.size())
      return add("argument-layout", Severity::error, lines_.entry(m.entry),
                 kernel + ", but the manifest declares " + std::to_string(declared.size()) +
                     ": write one [[arg]] for each, in order" +
                     (m.tensor_maps.empty() ? "" : ", or name them in [template] arguments"));
    for (std::size_t i = 0; i < declared.size(); ++i) {
      const std::uint32_t bytes = passed_size(m, declared[i]);
      if (bytes == 0 || bytes == real[i].size) continue;
      const std::string& name = passed_name(m, declared[i]);
      using From = source::PassedArgument::From;
      const bool given = declared[i].from == From::call;
      add("argument-layout", Severity::error, given ? lines_.argument(name) : lines_.entry(m.entry),
          "argument " + std::to_string(i) + ", '" + name + "' of type " +
              (given ? m.arguments[declared[i].index].type.to_string(m.parameters)
               : declared[i].from == From::tensor_map ? "tensormap"
                                                      : "constant") +
              ", has " + std::to_string(bytes) + " bytes, but the " + "kernel's has " +
              std::to_string(real[i].size) + " (" + kernel + "): correct its type or the order");
    }
  }

  /// Maps that are impossible for these parameters, whatever a call passes.
  void tensor_maps(const source::Manifest& m, const Known& known) {
    for (std::size_t i = 0; i < m.tensor_maps.size(); ++i) {
      const runtime::TensorMapRecipe map(m, i, known.slots,
                                         [&](const source::Expression& e) { return known.folded(e); });
      if (const std::string why = map.problem_of_constants(); !why.empty())
        add("tensormap", Severity::error, lines_.of({"tensormap"}), why);
    }
  }

  void block(const source::Manifest& m, const Known& known, const compile::EntryFacts& facts) {
    const auto shape = constant_shape(known, m.kernel.launch.block);
    if (!shape || m.kernel.launch.block.empty()) return;
    const auto required = facts.required_block;
    const Shape normal{required[0], std::max(required[1], 1u), std::max(required[2], 1u)};
    const std::uint64_t threads = std::uint64_t{(*shape)[0]} * (*shape)[1] * (*shape)[2];
    const std::string said = "[launch] block is " + text_of(*shape);
    if (required[0] > 0 && *shape != normal)
      add("block", Severity::error, lines_.of({"launch", "block"}),
          said + ", but the kernel was compiled for blocks of " + text_of(normal) + " threads only");
    else if (facts.max_threads > 0 && threads > facts.max_threads)
      add("block", Severity::error, lines_.of({"launch", "block"}),
          said + ", " + std::to_string(threads) + " threads, but __launch_bounds__ allows " +
              std::to_string(facts.max_threads));
    else if (threads > 1024)
      add("block", Severity::error, lines_.of({"launch", "block"}),
          said + ", " + std::to_string(threads) + " threads, but a block has at most 1024");
  }

  void cluster(const source::Manifest& m, const Known& known, const compile::EntryFacts& facts) {
    if (facts.cluster[0] == 0 || m.kernel.launch.cluster.empty()) return;
    const auto shape = constant_shape(known, m.kernel.launch.cluster);
    const Shape compiled{facts.cluster[0], std::max(facts.cluster[1], 1u), std::max(facts.cluster[2], 1u)};
    if (shape && *shape != compiled)
      add("cluster", Severity::error, lines_.of({"launch", "cluster"}),
          "[launch] cluster is " + text_of(*shape) + ", but the kernel was compiled for clusters of " +
              text_of(compiled) + " (__cluster_dims__): remove it, or write the same");
  }

  void debris(std::string_view image, const std::vector<std::string>& foreign) {
    std::vector<std::string> entries = {facts_.lowered_name}, wanted;
    for (const compile::EntryFacts& other : facts_.entries) entries.push_back(other.lowered_name);
    for (const compile::GlobalFact& global : facts_.globals) wanted.push_back(global.lowered_name);
    const Debris found = debris_of(image, entries, wanted);
    if (found.bytes <= kMuchDebris) return;
    std::vector<std::string> some(foreign.begin(),
                                  foreign.begin() + std::min<std::ptrdiff_t>(std::ssize(foreign), 6));
    if (some.size() < foreign.size()) some.push_back("...");
    add("debris", Severity::warning, lines_.of({"template", "source"}),
        human_bytes(found.bytes) + " of the image's " + human_bytes(found.image_bytes) +
            " are not its entry points' code: " + debris_text(found) +
            (foreign.empty() ? "" : "; brought by " + base::join(some, " ")) +
            (found.variables > 0
                 ? ". NVRTC keeps a variable for each static constexpr member and each constant "
                   "of the headers that it reads, used or not: include fewer headers, or use [compile] "
                   "replace "
                   "to reduce a header to what the kernel needs"
                 : ""));
  }

  const source::Manifest& manifest_;
  const source::Resolved& resolved_;
  const compile::Facts& facts_;
  const ManifestLines& lines_;
  LintFindings out_;
};

}  // namespace

LintFindings lint_image(const source::Manifest& manifest, const source::Resolved& resolved,
                        const compile::Facts& facts, std::string_view image,
                        const std::vector<std::string>& foreign, const ManifestLines& lines) {
  return ImageLint(manifest, resolved, facts, lines).run(image, foreign);
}

}  // namespace kiln::cli
