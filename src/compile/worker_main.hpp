// The compile worker's loop; tools/worker.cpp calls it.
#pragma once

namespace kiln::compile {

inline constexpr int kWorkerSocket = 3;

/// Answers requests on `kWorkerSocket` until the host closes it or dies. `host_pid` is watched by pidfd: a
/// forked child of the host may hold the socket open for ever, and PDEATHSIG would follow the thread that
/// spawned us. Returns the exit status.
int worker_main(int host_pid);

}  // namespace kiln::compile
