// One NVRTC compile in a private folder. It runs inside the worker, or on a thread of the host when there is
// no worker executable.
#pragma once

#include "compile/backend/backend.hpp"

namespace kiln::compile {

/// Compiles a request. Blocks while a thread with a 256 MiB stack compiles, because deep nesting overflows 8
/// MiB. Each search directory is a symlink in the private folder, under its symbolic name, so neither cwd nor
/// prefix reaches the image. `program_name` lies in a directory that does not exist, so no quoted include is
/// found beside it. Include paths are absolute where a sandbox forbids a thread its own working directory
/// (unshare); then the caller's check of the image decides. Never throws: faults are in the status.
WorkerResponse run_nvrtc(const WorkerRequest& request, WorkingDirectory whose) noexcept;

}  // namespace kiln::compile
