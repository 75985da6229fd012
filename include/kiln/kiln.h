/* kiln's C ABI: the only symbols the library exports. The C++ API (kiln/kiln.hpp) is an inline layer over it.
 *
 * Conventions
 *   - Every function returns a kiln_status unless it says otherwise; on failure kiln_last_error() of the same
 * thread has the details.
 *   - Structs that may grow begin with struct_size = sizeof(the struct), set by the caller. A smaller size
 * than the library knows is a caller of an older version: missing fields take their defaults.
 *   - Handles are thread-safe unless said otherwise. Strings are UTF-8, zero-terminated, copied by the
 * callee; what is returned lives as long as its owner.
 *   - No function creates a CUDA context or changes the current one.
 */
#ifndef KILN_KILN_H
#define KILN_KILN_H

#include <stddef.h>
#include <stdint.h>

#define KILN_VERSION_MAJOR 0
#define KILN_VERSION_MINOR 1
#define KILN_VERSION_PATCH 0

#define KILN_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* Compatible with cuda.h, which need not be included. */
typedef struct CUstream_st* CUstream;
typedef struct CUfunc_st* CUfunction;

typedef struct kiln_service kiln_service; /* configuration, cache, compiler, templates */
typedef struct kiln_template
    kiln_template; /* one template, bound to device, context and arch; owned by its service */
typedef struct kiln_kernel
    kiln_kernel; /* one loaded kernel; owned by its service, valid until that is destroyed */

/* Values are those of kiln::Errc (kiln/error.hpp), which documents them. */
typedef int32_t kiln_status;
enum { KILN_OK = 0 };

typedef struct kiln_error {
  size_t struct_size;
  kiln_status status;
  const char* message;        /* names the thing, the value and what was allowed */
  const char* specialization; /* compile errors: "rms_norm T=bf16 H=4096"; else "" */
  const char* options;        /* compile errors: one per line; else "" */
  const char* log;            /* compile errors: at most 16 KB of the compiler's log; else "" */
} kiln_error;

/* Of the last failing call of this thread; valid until its next failing call. Never null. */
KILN_API const kiln_error* kiln_last_error(void);

/* "0.1.0" */
KILN_API const char* kiln_version(void);

/* ---- service
 * -------------------------------------------------------------------------------------------------------------
 */

enum { KILN_MODE_DEFAULT = 0, KILN_MODE_JIT = 1, KILN_MODE_WARN = 2, KILN_MODE_SEALED = 3 };

/* Zero and null mean: KILN_* environment, then the configuration file, then the default. What is set here
 * beats them. */
typedef struct kiln_options {
  size_t struct_size;
  int32_t hermetic;      /* nonzero: ignore environment and configuration file */
  int32_t mode;          /* KILN_MODE_* */
  const char* cache_dir; /* the writable store's directory */
  const char*
      template_path; /* colon-separated directories, before KILN_TEMPLATE_PATH and the installed ones */
  const char* include_path; /* colon-separated directories */
  const char* cuda_home;    /* where NVRTC and the toolkit's headers are */
  const char*
      toolchain;      /* "own", "any" or a toolchain digest's first hex digits: whose records may be served */
  const char* arch;   /* for templates opened without a device: "90", "sm_90", "sm_90a" */
  const char* worker; /* the compile worker's executable */
  int32_t jobs;       /* compile workers at once; 0: as many as cores */
  double compile_deadline_s; /* a compile that takes longer is killed; at most 1e7; 0: 600 */
  const char* cache_layers;  /* read-only stores asked before cache_dir: colon-separated absolute directories,
                                which belong to root or this user alone */
  const char* cache_max_size; /* bytes that cache_dir may take: "512M", "5G" (powers of 1024) */
  const char* record; /* file to which every specialisation that was asked for and was not ready is appended,
                         as a plan for `kiln prewarm`; templates from memory are dumped beside it */
  const char* compile_memory; /* bytes that all compiles of this process may take together: "4G"; null:
                                 decided from the machine */
} kiln_options;

/* Touches no GPU and starts no process. `options` may be null. */
KILN_API kiln_status kiln_service_create(const kiln_options* options, kiln_service** out);
/* Unloads its kernels (they must be quiet), waits for compiles that it started. Null is allowed. Never fails.
 */
KILN_API void kiln_service_destroy(kiln_service* service);

/* A template from memory: manifest, source and (may be null) reference source. Kept until the service is
 * destroyed. */
KILN_API kiln_status kiln_service_add_template(kiln_service* service, const char* manifest,
                                               const char* source, const char* reference);

/* After it, and in mode sealed, only kernels in memory are returned; a miss fails at once and names the plan
 * line that would have made it ready. */
KILN_API kiln_status kiln_service_seal(kiln_service* service);

enum { KILN_DEVICE_CURRENT = -1, KILN_DEVICE_NONE = -2 };

/* Parses the manifest and binds to a context: KILN_DEVICE_CURRENT to the calling thread's current one (an
 * error without one), an ordinal to the current one after checking that it is on that device,
 * KILN_DEVICE_NONE to none: compile only, for `arch` (null: the configured one, else sm_90a). Cheap when
 * repeated. */
KILN_API kiln_status kiln_service_open(kiln_service* service, const char* name, int32_t device,
                                       const char* arch, kiln_template** out);

typedef struct kiln_stats {
  size_t struct_size;
  uint64_t memory_hits; /* answered by an image in memory; hits of the ready table are not counted (nor slowed
                           down) */
  uint64_t disk_hits;   /* answered by the store with its own toolchain's record */
  uint64_t foreign_toolchain; /* answered by the store with another toolchain's record */
  uint64_t compiles, compile_failures, remembered_failures;
  uint64_t waits; /* another thread or process compiled it meanwhile */
  uint64_t miss_absent, miss_damaged, miss_other_key_text, miss_gate_timeout, miss_unreadable, miss_no_store;
  uint64_t puts, puts_present, puts_skipped; /* skipped: compiled and served, not stored; the sum of: */
  uint64_t skipped_read_only;                /* the store is read-only */
  uint64_t skipped_gate_timeout;             /* other processes kept the store's gate for too long */
  uint64_t skipped_full;                     /* disk, quota, file-size limit or map full */
  uint64_t skipped_failed;                   /* any other fault of the store */
  uint64_t skipped_queue_full;               /* compiled faster than the disk takes it */
  uint64_t convoy_left;     /* compiled without the host's lock: two holders had ended without a record */
  uint64_t flight_timeouts; /* compiled without the host's lock: its holder passed the compile deadline */
  uint64_t unpublishable;   /* compiled and served, but not published: what the key cannot see */
  uint64_t sealed_misses;
  uint64_t loads, device_bytes; /* kernels loaded, bytes of their images */
  double compile_ms;            /* spent in compilers for this service */
  uint64_t evictions;           /* entries that made room in the store */
  uint64_t layer_hits;          /* answered by a read-only layer with its own toolchain's record */
} kiln_stats;

/* Fills what fits in out->struct_size. */
KILN_API kiln_status kiln_service_stats(kiln_service* service, kiln_stats* out);

/* ---- kernels
 * -------------------------------------------------------------------------------------------------------------
 */

enum {
  KILN_VALUE_UNSET = 0,
  KILN_VALUE_INTEGER = 1,
  KILN_VALUE_BOOLEAN = 2,
  KILN_VALUE_DTYPE = 3,
  KILN_VALUE_TEXT = 4
};

/* A parameter's value. UNSET: the manifest's default. Text is accepted for every kind of parameter. */
typedef struct kiln_value {
  int32_t kind;
  int32_t text_size; /* bytes of text, which need not be zero-terminated */
  int64_t integer;   /* integer, 0 or 1, or the ordinal of a kiln::Dtype */
  const char* text;
} kiln_value;

typedef struct kiln_get {
  size_t struct_size;
  double deadline_s; /* seconds from now to wait for a kernel that is not ready; 0: as long as the compile
                        deadline */
  CUstream stream;   /* when has_stream: a miss is refused if this stream is capturing */
  int32_t has_stream;
} kiln_get;

/* Parameters in manifest order (fewer: the rest take defaults); `names` null, or one name per value. `get`
 * may be null. */
KILN_API kiln_status kiln_template_get(kiln_template* t, const char* const* names, const kiln_value* values,
                                       size_t count, const kiln_get* get, const kiln_kernel** out);
/* The ready kernel, or null. Memory only: no lock, no allocation, no system call, no driver call; never
 * fails. */
KILN_API const kiln_kernel* kiln_template_try_get(kiln_template* t, const kiln_value* values, size_t count);

enum {
  KILN_OUTCOME_MEMORY = 0,
  KILN_OUTCOME_DISK,
  KILN_OUTCOME_LAYER,
  KILN_OUTCOME_REMOTE,
  KILN_OUTCOME_COMPILED,
  KILN_OUTCOME_WAITED
};

typedef struct kiln_image {
  size_t struct_size;
  int32_t outcome; /* KILN_OUTCOME_* */
  char key[65];    /* hex */
  char arch[16];
  const void* bytes; /* the cubin; valid until kiln_image_release */
  size_t size;
  const char* lowered_name;
  const char* specialization;
  void* owner;
} kiln_image;

/* The image only: needs no GPU and loads nothing. Release with kiln_image_release. */
KILN_API kiln_status kiln_template_compile(kiln_template* t, const char* const* names,
                                           const kiln_value* values, size_t count, kiln_image* out);
KILN_API void kiln_image_release(kiln_image* image);

typedef struct kiln_kernel_info {
  size_t struct_size;
  int32_t outcome; /* how this kernel was obtained */
  char key[65];
  uint32_t registers;    /* per thread */
  uint32_t spill_bytes;  /* stores + loads, per thread */
  uint32_t shared_bytes; /* static, per block */
  uint32_t max_threads;  /* 0: not bounded by the source */
  uint32_t argument_count;
  const char* specialization;
  const char* lowered_name;
} kiln_kernel_info;

KILN_API kiln_status kiln_kernel_get_info(const kiln_kernel* kernel, kiln_kernel_info* out);
/* For those who launch themselves. Valid as long as the kernel. */
KILN_API CUfunction kiln_kernel_function(const kiln_kernel* kernel);

enum {
  KILN_ARG_POINTER = 0,
  KILN_ARG_SIGNED = 1,
  KILN_ARG_UNSIGNED = 2,
  KILN_ARG_FLOAT = 3,
  KILN_ARG_BYTES = 4
};

/* One argument of a launch: what `data` points to. Integers and floats are converted to the declared width
 * when the value fits. */
typedef struct kiln_arg_type {
  uint32_t kind; /* KILN_ARG_* */
  uint32_t size; /* bytes: 1, 2, 4, 8, or a struct's */
} kiln_arg_type;

/* Launches with the manifest's geometry. Arguments in manifest order; trailing optional ones may be left out;
 * [runtime] values follow the arguments. data[i] points to an argument, at any alignment; it is read before
 * the call returns. Count and types are checked once per kernel and list of types, compared by content: eight
 * lists are remembered, a kernel that is called with more has the others checked each time. The kernel's
 * context must be current. Alignment of pointers and [[require]] are checked on every launch. A grid without
 * blocks (no rows) launches nothing and succeeds. */
KILN_API kiln_status kiln_kernel_launch(const kiln_kernel* kernel, CUstream stream,
                                        const kiln_arg_type* types, const void* const* data, size_t count);

typedef struct kiln_launch_config {
  size_t struct_size;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes; /* dynamic */
  uint32_t cluster[3];   /* zeros: none */
  int32_t pdl, cooperative;
  CUstream stream;
} kiln_launch_config;

/* Raw: geometry and parameter pointers as cuLaunchKernelEx takes them; nothing is checked. Dynamic shared
 * memory beyond 48 KiB and clusters of more than 8 blocks are allowed for the function first. */
KILN_API kiln_status kiln_kernel_launch_raw(const kiln_kernel* kernel, const kiln_launch_config* config,
                                            void** parameters);

#ifdef __cplusplus
}
#endif
#endif
