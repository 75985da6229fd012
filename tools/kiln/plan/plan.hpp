// The tasks of `kiln prewarm`: plan files or the templates' own plans, resolved and without repeats.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/store/store.hpp"
#include "instantiate/instantiate.hpp"
#include "instantiate/plan.hpp"
#include "tools/kiln/cli/context.hpp"

namespace kiln::cli {

struct PlannedTask {
  std::shared_ptr<const source::Template> origin;
  source::Resolved resolved;
  std::vector<Parameter> tuned;  ///< the values that a tuned choice gave
  bool choice_missing = false;   ///< recorded with a choice that no store has
  std::string label;             ///< "rms_norm T=bf16 H=4096 sm_90a", as the plan writes it

  const Specialization& specialization() const noexcept { return resolved.specialization; }
};

/// A tuned choice that rows took, or that a row was recorded with.
struct PlannedChoice {
  Key key;
  std::string label;
  std::optional<cache::Record> record{};  ///< the recorded choice; nothing: the stores have it
};

struct PrewarmPlan {
  std::vector<PlannedTask> tasks;  ///< in the order in which they are to be made
  std::vector<PlannedChoice> choices;
  std::size_t without_device = 0;    ///< rows recorded with a choice, while no device is named
  std::vector<std::string> skipped;  ///< rows of shipped plans without a kernel for an arch, and why
  std::size_t repeats = 0;           ///< rows that ask for a specialisation again, perhaps in other words
  std::vector<std::string> ignored;  ///< unfinished rows of traces
};

/// The device whose tuned choices apply.
struct PlanDevice {
  std::string said;          ///< --device; empty: not given
  bool this_gpu = true;      ///< without --device, this machine's GPU counts if it has the row's arch
  bool record_wins = false;  ///< a recorded choice replaces a stored one, as a layer needs
};

/// Resolves the rows of `files`, or without `files` the [[prewarm]] rows of every template that is
/// not internal. A row is made for its own arch, else for `targets`. Throws Error before
/// anything is compiled:
/// - `io` for an unreadable plan;
/// - for a mistake in a plan "FILE:LINE: ...", with a code whose exit is kUsage: no TOML, an unknown
///   template or parameter, a wrong value, or too many rows.
PrewarmPlan make_plan(Context& context, const std::vector<std::string>& files, const TargetGpus& targets,
                      const PlanDevice& device);

/// Appends to `template_path` the directories of templates that lie beside the traces among `files`.
std::string template_path_of(const std::vector<std::string>& files, const std::string& template_path);

}  // namespace kiln::cli
