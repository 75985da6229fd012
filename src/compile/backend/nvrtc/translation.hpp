// One run of NVRTC: from a program to its results.
#pragma once

#include <string>
#include <vector>

#include "compile/backend/request.hpp"
#include "toolchain/nvrtc.hpp"

namespace kiln::compile {

/// Fills in status, log, times, names, image and PTX. Messages about a precompiled header go into
/// `response.header`. False when the compile failed or its image is too large. Throws Error(internal) when a
/// call fails that cannot fail.
bool translate(const toolchain::Nvrtc& nvrtc, const WorkerRequest& request,
               const std::vector<std::string>& options, WorkerResponse& response);

}  // namespace kiln::compile
