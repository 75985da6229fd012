// What `kiln prewarm` is to make: plan files or the templates' own plans, resolved and without repeats.
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
  std::vector<Parameter> tuned;  ///< those of its values that a tuned choice gave
  bool choice_missing = false;   ///< it was recorded with a choice that is stored nowhere
  std::string label;             ///< "rms_norm T=bf16 H=4096 sm_90a": as the plan says it

  const Specialization& specialization() const noexcept { return resolved.specialization; }
};

/// A tuned choice that rows took, or that one was recorded with.
struct PlannedChoice {
  Key key;
  std::string label;
  std::optional<cache::Record> record{};  ///< as recorded; nothing: the stores have it
};

struct PrewarmPlan {
  std::vector<PlannedTask> tasks;  ///< in the order in which they are to be made
  std::vector<PlannedChoice> choices;
  std::size_t without_device = 0;    ///< rows whose choices were recorded, and that no device was said for
  std::vector<std::string> skipped;  ///< what the shipped plan has no kernel for on an arch, and why
  std::size_t repeats = 0;           ///< asked for again, by the same values or by others that mean the same
  std::vector<std::string> ignored;  ///< rows of records that were never finished
};

/// Whose tuned choices hold.
struct PlanDevice {
  std::string said;          ///< --device; empty: not said
  bool this_gpu = true;      ///< then that of this machine counts, if it is of the row's arch
  bool record_wins = false;  ///< over what the stores have: a layer is what it was recorded as
};

/// Without `files`: the [[prewarm]] of every template that is not internal. Each row for its own arch, else
/// for every one of `archs`. Throws Error before anything is compiled: `io` for an unreadable plan, and for a
/// mistake in one (no TOML, an unknown template or parameter, a wrong value, too many) "FILE:LINE: ..." with
/// a code whose exit is kUsage.
PrewarmPlan make_plan(Context& context, const std::vector<std::string>& files,
                      const std::vector<base::Arch>& archs, const PlanDevice& device);

/// `template_path` and, behind it, the directories of templates that lie beside the records among `files`.
std::string template_path_of(const std::vector<std::string>& files, const std::string& template_path);

}  // namespace kiln::cli
