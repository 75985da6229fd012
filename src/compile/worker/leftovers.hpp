// Directories of workers that were killed together with their hosts.
#pragma once

#include <string>

namespace kiln::compile {

inline constexpr const char* kWorkerDirectory = "kiln-worker-";  ///< what their names begin with

/// Locked until this process ends: it is in use.
void hold_directory(const std::string& directory) noexcept;

/// Removes those beside `directory` that are ours, older than a minute and held by nobody. Once in a process.
void sweep_leftovers(const std::string& directory) noexcept;

}  // namespace kiln::compile
