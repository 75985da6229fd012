// The threads that run a plan.
#pragma once

#include <functional>
#include <string>

namespace kiln::cli {

/// Calls `work` in this thread and in `wanted - 1` others at once, and returns when every call has returned.
/// The system may give fewer threads (a limit of processes). Then most of them are given back first, because
/// compiles need processes and threads of their own. `on_fewer` receives the number of working threads, at
/// least 1, and the reason.
///
/// An exception of `work` in this thread is thrown after the others have returned. In other threads `work`
/// must not throw.
void run_in_threads(int wanted, const std::function<void()>& work,
                    const std::function<void(int, const std::string&)>& on_fewer);

}  // namespace kiln::cli
