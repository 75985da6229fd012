// The record of a directory: captured, restored and looked up by commands.
#pragma once

#include <optional>
#include <string>

#include "runtime/service/service.hpp"
#include "tools/kiln/caches/directory/target.hpp"
#include "tools/kiln/caches/tree/capture.hpp"
#include "tools/kiln/caches/tree/restore.hpp"

namespace kiln::cli {

struct CapturedTarget : Captured {
  bool changed = false;  ///< the record is new, or differs from the one before
};
/// Captures the directory of the target. Throws Error(io).
CapturedTarget capture_target(const Target& target, bool full, runtime::Service& service);

/// How a restore writes.
struct RestoreChoice {
  bool copy = false, force = false, full = false;
};
struct RestoredTarget : Restored {
  std::optional<Tree> tree;  ///< the record; nothing when there is none
};
/// Restores the directory of the target. Throws as restore() does.
RestoredTarget restore_target(const Target& target, const RestoreChoice& choice, runtime::Service& service);

}  // namespace kiln::cli
