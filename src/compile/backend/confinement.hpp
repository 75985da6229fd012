// Limits a compile to its search directories, whatever its source says. The scan of the source refuses what
// it can see. The kernel (Landlock) refuses the rest, such as a file name that macros put together.
#pragma once

#include <string>
#include <vector>

#include "closure/closure.hpp"
#include "compile/backend/request.hpp"

namespace kiln::compile {

/// Limits which files the calling thread, and threads that it starts later, may open:
/// - for reading: the request's search directories, its `linked` paths, `readable`, and the library
///   directories of the compiler and the system
/// - for reading and writing: `private_directory` and `writable`
///
/// Files that are already open stay open. The limit cannot be lifted, so the thread must end with its
/// compile. Returns false when the kernel has no Landlock (before 5.13), or when the kernel or a sandbox
/// refuses it. The thread then has no limits.
bool confine_compile(const WorkerRequest& request, const std::string& private_directory,
                     const std::vector<std::string>& writable = {},
                     const std::vector<std::string>& readable = {}) noexcept;

/// Paths outside the search directories that belong to them because a symlink leads there. For a project
/// file this is the file that was scanned. For a toolkit file it is the directory that the file's relative
/// name starts from, because a computed include may reach files that no scan saw. Bazel, Nix and Spack
/// build such symlink farms.
std::vector<std::string> linked_from(const source::Closure& closure);

}  // namespace kiln::compile
