// Directories of workers that were killed together with their hosts.
#pragma once

#include <string>

namespace kiln::compile {

inline constexpr const char* kWorkerDirectory = "kiln-worker-";  ///< beginning of a worker directory's name

/// Locks the directory until this process ends, to show that it is in use.
void hold_directory(const std::string& directory) noexcept;

/// Removes directories beside `directory` that belong to us, are older than a minute and are not locked.
/// Runs once in a process.
void sweep_leftovers(const std::string& directory) noexcept;

}  // namespace kiln::compile
