// From a caller's values to a specialisation, where a stored choice takes the place of the manifest's
// defaults of parameters with `tune`.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "kiln/digest.hpp"
#include "runtime/pipeline.hpp"
#include "source/instantiate.hpp"

namespace kiln::runtime {

struct TunedCall {
  source::Resolved resolved;
  std::vector<Parameter> tuned;  ///< those of `resolved` that a choice gave
  std::optional<Key> choice;     ///< its record's key
};

enum class Disk { asked, left_alone };

/// source::resolve for the device of that name (empty: none is known, and nothing is tuned). Once per process
/// and call, whatever is stored later and whichever service asks: see pinned_choices.hpp. With
/// Disk::left_alone only what was resolved before is known, and nothing becomes so. A fault of the stores,
/// and a choice that the manifest does not allow (one warning), is none. Throws as source::resolve.
TunedCall resolve_tuned(Pipeline& pipeline, const std::shared_ptr<const source::Template>& origin,
                        std::span<const Value> values, base::Arch arch, const std::string& device,
                        source::Archs archs = source::Archs::supported, Disk disk = Disk::asked,
                        base::Deadline deadline = base::Deadline::never());

}  // namespace kiln::runtime
