/* A CUDA driver for tests without a GPU. Point KILN_LIBCUDA at libkiln_fake_cuda.so before the first call
 * of Driver::get().
 *
 * It enforces the rules that kiln could break: initialisation, forks, contexts, handles, geometry, capture
 * and argument sizes. It computes on host memory and records launches. The library exports the control
 * functions below beside cuGetProcAddress_v2; each of them is thread-safe. The first call reads the
 * environment:
 * - KILN_FAKE_DEVICES=2          number of devices (default 1)
 * - KILN_FAKE_ARCH=90            compute capability of all devices (default 90)
 * - KILN_FAKE_NAME="a name"      the answer of cuDeviceGetName (default "Fake sm_90")
 * - KILN_FAKE_VERSION=13000      the driver's version; newer entry points do not exist (default 13000)
 * - KILN_FAKE_MISSING=cuFuncLoad,...           entry points that do not exist
 * - KILN_FAKE_FAIL=cuLibraryLoadData=200,...   calls kiln_fake_fail(name, result, 0, -1)
 * - KILN_FAKE_STRICT_CAPTURE=1   calls kiln_fake_strict_capture(1)
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

/* cuTensorMapEncodeTiled writes this into the first bytes of a CUtensorMap. Modes and types are the numbers of
 * cuda.h. */
#define KILN_FAKE_TENSOR_MAP "TENSMAP"
typedef struct {
  char magic[8];
  unsigned long long address, dims[5], strides[4]; /* strides in bytes, of dimensions 1 to 4 */
  unsigned short box[5];
  unsigned char element_strides[5], data_type, rank, interleave, swizzle, l2, fill;
} kiln_fake_tensor_map;

/* Forgets launches, counts, injected errors and options. Every handle becomes invalid. A driver that was
 * initialised stays initialised. */
void kiln_fake_reset(void);

/* Calls of entry point `name` since the last reset, failed calls included; NULL counts all entry points. */
unsigned long kiln_fake_calls(const char* name);
/* Calls of all entry points by the calling thread. A reset does not clear this count. */
unsigned long kiln_fake_calls_here(void);
/* Number of objects that exist now. `what` is "context", "library", "stream", "event", "graph", "exec" or
 * "memory"; with "bytes", the bytes of memory that are allocated. */
size_t kiln_fake_live(const char* what);

/* The next `after` calls of `name` pass. The `times` calls after them return `result` and do nothing else.
 * With `times` -1, all later calls do. */
void kiln_fake_fail(const char* name, int result, int after, int times);
/* From now on every call returns CUDA_ERROR_DEINITIALIZED, as after the process's exit handlers ran. */
void kiln_fake_deinitialize(void);
/* Acts as drivers older than 580: a load while a stream captures fails with 900 and breaks the capture,
 * unless the thread is in relaxed capture mode. */
void kiln_fake_strict_capture(int on);
/* The next context that is made gets the address of the context destroyed last, and an id of its own. Without
 * this, addresses are not used again. */
void kiln_fake_reuse_context_address(int on);
/* cuLaunchKernelEx returns at once, without checks and records. For benchmarks of the code above it. */
void kiln_fake_quiet(int on);

/* Number of launches since the last reset. kiln_fake_launch_at returns one of them, in order of launch:
 * `index` counts from 0, and the result is 0 when there is no such launch. */
size_t kiln_fake_launches(void);
int kiln_fake_launch_at(size_t index, kiln_fake_launch* out);
/* `callback` runs on the launching thread for each kernel that executes; a captured kernel executes when its
 * graph is launched. NULL removes the callback. */
void kiln_fake_on_launch(void (*callback)(const kiln_fake_launch*, void* user), void* user);

/* The callback says with this how long a launch takes. From the first call on, events report the sum of these
 * times instead of the time that passed. */
void kiln_fake_spend(double microseconds);

#ifdef __cplusplus
}
#endif
