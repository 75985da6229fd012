// From a caller's values to a specialisation, where a stored choice takes the place of the manifest's
// defaults of parameters with `tune`.
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
  std::vector<Parameter> tuned;  ///< those of `resolved` that a choice gave
  std::optional<Key> choice;     ///< its record's key
  /// Not empty: what is `resolved` by default, with nothing that makes the process stay with it, is pinned
  /// under.
  std::string undecided;
  /// The files of `resolved`, if this call has read them and found no choice; else null.
  std::shared_ptr<const KeyedFiles> files;
};

enum class Disk { asked, left_alone };

/// source::resolve for the device of that name (empty: none is known, and nothing is tuned). Once per process
/// and call, whatever is stored later and whichever service asks: see pinned_choices.hpp. With
/// Disk::left_alone only what was resolved before is known, and nothing becomes so. A choice that is damaged,
/// that the manifest does not allow, or with which it allows less at a launch than by default (one warning),
/// is none. Where a store could not be asked, the defaults are for this answer alone. Throws as
/// source::resolve.
TunedCall resolve_tuned(Files& files, Choices& choices, const std::shared_ptr<const source::Template>& origin,
                        std::span<const Value> values, base::Arch arch, const std::string& device,
                        source::Archs archs = source::Archs::supported, Disk disk = Disk::asked,
                        base::Deadline deadline = base::Deadline::never());

/// A call as it was recorded: `values` of which `tuned` had been left open.
struct RecordedCall {
  std::vector<Value> call;        ///< the values with these left open; views into the recorded ones
  source::Resolved plain;         ///< the call without a choice
  std::vector<std::size_t> free;  ///< its parameters with candidates
  std::vector<Parameter> chosen;  ///< what they were
};
/// Nothing when the manifest is another now: where the call leaves other parameters open, or with these
/// values is not what was recorded. Throws as source::resolve.
std::optional<RecordedCall> recorded_call(const source::Template& origin, std::span<const Value> values,
                                          const std::vector<std::string>& tuned, base::Arch arch);
/// From now on the call is resolved as it was recorded, if nobody has resolved it before. Whether it is.
bool pin_recorded(const source::Template& origin, const RecordedCall& recorded, const std::string& device);

}  // namespace kiln::runtime
