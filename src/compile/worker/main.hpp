// The compile worker's loop; tools/worker.cpp calls it.
#pragma once

namespace kiln::compile {

inline constexpr int kWorkerSocket = 3;
inline constexpr int kNotStartedByHost = 2;  ///< exit status

/// Answers requests on `kWorkerSocket` until the host closes it or dies. Returns the exit status.
/// WorkerProcess::spawn gives these arguments:
/// - the host's pid
/// - RLIMIT_AS in bytes and CPU seconds per compile; 0: no limit
/// - libnvrtc and its builtins, to be opened at once; empty: opened with the first request
///
/// The host is watched by pidfd. A forked child of the host may hold the socket open for ever, and PDEATHSIG
/// would follow the thread that spawned the worker.
int worker_main(int argc, char** argv);

}  // namespace kiln::compile
