// One run of NVRTC: a program in, and what it gave out.
#pragma once

#include <string>
#include <vector>

#include "compile/backend/request.hpp"
#include "toolchain/nvrtc.hpp"

namespace kiln::compile {

/// Fills in status, log, times, names, image and PTX; what was said of a precompiled header goes into
/// `response.header`. False when the compile failed, or its image is too large to be taken. Throws
/// Error(internal) for a call that cannot fail.
bool translate(const toolchain::Nvrtc& nvrtc, const WorkerRequest& request,
               const std::vector<std::string>& options, WorkerResponse& response);

}  // namespace kiln::compile
