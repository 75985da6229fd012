// One NVRTC compile in a private folder: runs inside the worker, or on a thread of the host when there is no
// worker executable.
#pragma once

#include "compile/backend/backend.hpp"

namespace kiln::compile {

/// Blocks, on a thread of its own with a 256 MiB stack (deep nesting overflows 8 MiB). The compile runs in a
/// private folder in which each search directory is a symlink under its symbolic name, so that neither cwd
/// nor prefix reaches the image, and `program_name` lies in a directory that does not exist, so that no
/// quoted include is found beside it. Where a sandbox forbids a thread its own working directory (unshare),
/// include paths are absolute, and the caller's check of the image decides. Never throws; faults are in the
/// status.
WorkerResponse run_nvrtc(const WorkerRequest& request, WorkingDirectory whose) noexcept;

}  // namespace kiln::compile
