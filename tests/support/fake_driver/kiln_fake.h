/* A CUDA driver for tests without a GPU: point KILN_LIBCUDA at libkiln_fake_cuda.so before the first
 * Driver::get().
 *
 * It keeps the rules that kiln could break (initialisation, forks, contexts, handles, geometry, capture,
 * argument sizes), computes on host memory, and records launches. The control functions below are exported
 * beside cuGetProcAddress_v2; every one is thread-safe. Environment, read once by the first call:
 *   KILN_FAKE_DEVICES=2          number of devices (default 1)
 *   KILN_FAKE_ARCH=90            compute capability of all devices (default 90)
 *   KILN_FAKE_NAME="a name"      what cuDeviceGetName says (default "Fake sm_90")
 *   KILN_FAKE_VERSION=13000      the driver's version; newer entry points do not exist (default 13000)
 *   KILN_FAKE_MISSING=cuFuncLoad,...           entry points that do not exist
 *   KILN_FAKE_FAIL=cuLibraryLoadData=200,...   as kiln_fake_fail(name, result, 0, -1)
 *   KILN_FAKE_STRICT_CAPTURE=1   as kiln_fake_strict_capture(1)
 */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const char* kernel; /* lowered name; lives until kiln_fake_reset */
  unsigned grid[3], block[3], cluster[3], shared_bytes;
  int cooperative, programmatic, captured; /* captured: recorded into a graph, not run */
  const void* stream;
  unsigned argument_count;
  const void* const* arguments; /* copies, each argument_sizes[i] bytes, aligned to 16 */
  const size_t* argument_sizes;
} kiln_fake_launch;

/* Forgets launches, counts, injected errors and options; every handle becomes invalid; initialised stays
 * initialised. */
void kiln_fake_reset(void);

/* How often an entry point was called, also when it failed; of all with NULL. */
unsigned long kiln_fake_calls(const char* name);
/* Calls of all entry points by the calling thread; a reset leaves the count. */
unsigned long kiln_fake_calls_here(void);
/* What exists now: "context" "library" "stream" "event" "graph" "exec" "memory"; bytes allocated: "bytes". */
size_t kiln_fake_live(const char* what);

/* Calls of `name` return `result` without effect: first `after` calls pass, then `times` calls fail (-1:
 * all). */
void kiln_fake_fail(const char* name, int result, int after, int times);
/* From now on every call returns CUDA_ERROR_DEINITIALIZED, as after the process's exit handlers ran. */
void kiln_fake_deinitialize(void);
/* Drivers older than 580: loading while a stream captures fails with 900 and breaks the capture, unless the
 * thread is in relaxed capture mode. */
void kiln_fake_strict_capture(int on);
/* The next context that is made gets the address of the one destroyed last, with an id of its own. Otherwise
 * addresses are not used again. */
void kiln_fake_reuse_context_address(int on);
/* No checks, no records: cuLaunchKernelEx returns at once. For benchmarks of the code above it. */
void kiln_fake_quiet(int on);

/* Launches since the last reset, in order; `index` counts from 0. 0 when there is no such launch. */
size_t kiln_fake_launches(void);
int kiln_fake_launch_at(size_t index, kiln_fake_launch* out);
/* Runs on the launching thread for each kernel that executes (a graph's when the graph is launched). NULL to
 * stop. */
void kiln_fake_on_launch(void (*callback)(const kiln_fake_launch*, void* user), void* user);

/* A launch takes so long, to be said by the callback: from the first call on, events tell the sum of what was
 * said instead of the time that passed. */
void kiln_fake_spend(double microseconds);

#ifdef __cplusplus
}
#endif
