// The threads that walk a plan.
#pragma once

#include <functional>
#include <string>

namespace kiln::cli {

/// Calls `work` in this thread and in `wanted - 1` more, all at once, and returns when every call has. Where
/// the system gives fewer threads (a limit of processes), most of those that it gave are handed back first,
/// since the compiles need processes and threads of their own; `on_fewer` is then called with how many work,
/// at least 1, and why. What `work` throws in this thread is thrown when the others have returned; in another
/// it must throw nothing.
void run_in_threads(int wanted, const std::function<void()>& work,
                    const std::function<void(int, const std::string&)>& on_fewer);

}  // namespace kiln::cli
