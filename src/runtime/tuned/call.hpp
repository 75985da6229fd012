// Resolves a caller's values to a specialisation. A stored choice replaces the manifest's defaults of
// parameters with `tune`.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "instantiate/instantiate.hpp"
#include "kiln/digest.hpp"
#include "runtime/tuned/choices.hpp"

namespace kiln::runtime {

struct TunedCall {
  source::Resolved resolved;
  std::vector<Parameter> tuned;  ///< the parameters of `resolved` that a choice gave
  std::optional<Key> choice;     ///< key of the choice's record
  /// Not empty: `resolved` has the defaults, but no answer is pinned for this call yet. This is the name
  /// under which an answer will be pinned.
  std::string undecided;
  /// The files of `resolved`, if this call has read them and found no choice; else null.
  std::shared_ptr<const KeyedFiles> files;
};

enum class Disk { asked, left_alone };

/// source::resolve, with tuned choices for the device `device`. An empty name means that no device is known,
/// and nothing is tuned.
/// A call is resolved once per process, whatever is stored later and whichever service asks
/// (pinned_choices.hpp). With Disk::left_alone only earlier answers are used, and none is pinned.
/// A damaged choice counts as absent. So does, with one warning, a choice that the manifest does not allow,
/// or that allows less at a launch than the defaults.
/// When a store could not be asked, the defaults hold for this answer alone. Throws as source::resolve.
TunedCall resolve_tuned(Files& files, Choices& choices, const std::shared_ptr<const source::Template>& origin,
                        std::span<const Value> values, base::Arch arch, const std::string& device,
                        source::Archs archs = source::Archs::supported, Disk disk = Disk::asked,
                        base::Deadline deadline = base::Deadline::never());

/// A recorded call, in which the parameters `tuned` had been left open.
struct RecordedCall {
  std::vector<Value> call;        ///< the values with `tuned` left open; views into the recorded values
  source::Resolved plain;         ///< the call without a choice
  std::vector<std::size_t> free;  ///< open parameters with candidates
  std::vector<Parameter> chosen;  ///< the recorded values of `free`
};
/// Nothing when nothing was tuned, or when the manifest has changed: the call leaves other parameters open,
/// or these values no longer give what was recorded. Throws as source::resolve.
std::optional<RecordedCall> recorded_call(const source::Template& origin, std::span<const Value> values,
                                          const std::vector<std::string>& tuned, base::Arch arch);
/// Pins the call as it was recorded, unless it was resolved before. True when the call is now
/// resolved as recorded.
bool pin_recorded(const source::Template& origin, const RecordedCall& recorded, const std::string& device);

}  // namespace kiln::runtime
