// A compile reads its search directories and nothing else, whatever its source says: the scan of its text
// refuses what it can see, the kernel (Landlock) the rest, as a name that macros put together.
#pragma once

#include <string>
#include <vector>

#include "closure/closure.hpp"
#include "compile/backend/request.hpp"

namespace kiln::compile {

/// From now on the calling thread, and threads that it starts, open only: the request's search directories
/// and `linked` and `readable` (reading), the compiler's and the system's library directories (reading),
/// `private_directory` and `writable` (reading and writing). What is open already stays so. There is no way
/// back: the thread must end with its compile. False when the kernel has no Landlock (before 5.13), or it or
/// a sandbox refuses it: the thread is then as free as before.
bool confine_compile(const WorkerRequest& request, const std::string& private_directory,
                     const std::vector<std::string>& writable = {},
                     const std::vector<std::string>& readable = {}) noexcept;

/// What lies outside the search directories and yet belongs to them, because a symlink in one leads there:
/// the file that was scanned, or, in the toolkit (a computed include reaches files that no scan saw), the
/// directory that the same name is relative to. Symlink farms (Bazel, Nix, Spack) are built of such links.
std::vector<std::string> linked_from(const source::Closure& closure);

}  // namespace kiln::compile
