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

/* A program that is linked to the static library may lie anywhere, so kiln's CMake package defines
 * KILN_INSTALL_PREFIX; other builds may do so, as a string literal. The library looks below that prefix for
 * its templates and its compile worker when they are not around the program. */
#ifdef KILN_INSTALL_PREFIX
extern __attribute__((weak, visibility("hidden"))) const char kiln_install_prefix[];
const char kiln_install_prefix[] = KILN_INSTALL_PREFIX;
#endif

/* Compatible with cuda.h, which need not be included. */
typedef struct CUstream_st* CUstream;
typedef struct CUfunc_st* CUfunction;

typedef struct kiln_service kiln_service; /* configuration, cache, compiler, templates */
typedef struct kiln_template
    kiln_template; /* one template, bound to device, context and arch; owned by its scope */
typedef struct kiln_scope kiln_scope; /* owner of templates and kernels within a service */
typedef struct kiln_kernel
    kiln_kernel; /* one loaded kernel; owned by its scope, valid until that is released */
typedef struct kiln_future kiln_future;           /* a kernel that is being made ready */
typedef struct kiln_preparation kiln_preparation; /* many of them */

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
enum { KILN_ADOPT_WHEN_ASKED = 0, KILN_ADOPT_AUTOMATICALLY = 1 };

enum {
  KILN_EVENT_COMPILE_STARTED = 1,
  KILN_EVENT_COMPILE_FINISHED = 2, /* milliseconds: how long it took; bytes: of the image */
  KILN_EVENT_COMPILE_FAILED = 3,   /* milliseconds; message: the error's first line */
  KILN_EVENT_WAIT_STARTED = 4,     /* for a compile of another thread or process */
  KILN_EVENT_WAIT_FINISHED = 5,    /* milliseconds; also when the wait ended in a failure or at a deadline */
  KILN_EVENT_LOADED = 6,           /* milliseconds: in the driver; bytes: of the image */
  KILN_EVENT_EVICTED = 7, /* count: entries that left the store; specialization: what needed the room */
  KILN_EVENT_MISS_AFTER_SEAL = 8, /* mode sealed refuses it, mode warn makes it */
  KILN_EVENT_ADOPTED = 9          /* the specialised kernel has replaced its fallback */
};

/* What happened to one specialisation. Strings live for the call; "" where they say nothing. */
typedef struct kiln_event {
  size_t struct_size;
  int32_t kind;               /* KILN_EVENT_* */
  const char* specialization; /* "rms_norm T=bf16 H=4096" */
  const char* arch;           /* "sm_90a" */
  const char* message;
  double milliseconds;
  uint64_t count, bytes;
} kiln_event;

/* Called on whichever thread it happens on, of kiln's or the caller's, without a lock that a call of kiln
 * could want: it may call kiln, but must not wait for the very kernel that it is told of. It must be
 * thread-safe, must not throw, and should be quick: it delays what it is told of. Not called after
 * kiln_service_destroy has returned. */
typedef void (*kiln_event_callback)(const kiln_event* event, void* user);

/* Zero and null mean: KILN_* environment, then the configuration file, then the default. What is set here
 * beats them. */
typedef struct kiln_options {
  size_t struct_size;
  int32_t hermetic;      /* nonzero: ignore environment and configuration file */
  int32_t mode;          /* KILN_MODE_*; set by nobody: jit, and sealed after a seal */
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
  const char* compile_memory;   /* bytes that all compiles of this process may take together: "4G"; null:
                                   decided from the machine */
  kiln_event_callback on_event; /* null: nobody is told */
  void* event_user;             /* given back to on_event */
  int32_t adopt;                /* KILN_ADOPT_*: when a specialised kernel replaces its fallback */
  const char* remote; /* servers of the fleet's tier, comma-separated: "redis://[user:password@]host[:port]",
                         "rediss://...", "redis+unix:///path"; null: KILN_REMOTE, else none */
  const char* remote_mode; /* "locked": only read from it (the default); "fleet": also write, signed, and let
                              one node compile for all */
  const char*
      remote_key; /* public keys (minisign's) or their files, comma-separated: whose entries are used */
  const char* remote_sign;   /* the secret key's file, which signs what this service writes */
  double remote_budget_s;    /* how long a compile of another node is waited for; 0: 60 */
  const char* remote_sealed; /* "never" (the default): in mode sealed only kiln_service_prepare asks the tier;
                                "ask": so does a get before the seal */
} kiln_options;

/* Touches no GPU and starts no process. `options` may be null. */
KILN_API kiln_status kiln_service_create(const kiln_options* options, kiln_service** out);
/* Unloads its kernels (they must be quiet), ends the compiles that it started and waits for them. Its scopes,
 * futures and preparations must be gone. Null is allowed. Never fails. */
KILN_API void kiln_service_destroy(kiln_service* service);

/* A template from memory: manifest, source and (may be null) reference source. Kept until the service is
 * destroyed. */
KILN_API kiln_status kiln_service_add_template(kiln_service* service, const char* manifest,
                                               const char* source, const char* reference);

/* The seal of one service. In mode sealed, and in a service whose mode nobody set, only kernels in memory are
 * returned from here on: a miss makes no driver call, touches no file, fails at once (not_ready) and names
 * the plan row that would have made it ready. A service that was told jit or warn keeps compiling, and the
 * seal logs one warning that says so; in mode warn each miss is one event. Mode sealed never compiles before
 * the seal either: what is on disk loads. kiln_service_prepare is the one way past it. There is no way back.
 */
KILN_API kiln_status kiln_service_seal(kiln_service* service);

/* Seals every service of this process, present and future, of every copy of kiln in it (shared, static,
 * hidden, loaded later; not those that dlmopen has put into another linker namespace). A service whose mode
 * nobody set takes mode sealed; one that was told jit or warn keeps that. A forked child stays sealed. There
 * is no way back. Callable at any time, by any thread. */
KILN_API kiln_status kiln_process_seal(void);

/* Text that kiln made; release with kiln_text_release. */
typedef struct kiln_text {
  size_t struct_size;
  const char* data; /* zero-terminated */
  size_t size;
  void* owner;
} kiln_text;
KILN_API void kiln_text_release(kiln_text* text);

/* What was asked for and refused because of the seal, each specialisation once, in the order in which it was
 * first missed, as a plan for `kiln prewarm` or kiln_service_prepare; at most 10,000 rows are kept. "" when
 * nothing was missed. */
KILN_API kiln_status kiln_service_missing(kiln_service* service, kiln_text* out);

/* A digest (32 hex digits and a zero) over what is loaded now: specialisations, their resolved parameters,
 * archs and the bytes of their images, in no order. Two ranks with the same fingerprint run the same kernels.
 */
KILN_API kiln_status kiln_service_fingerprint(kiln_service* service, char out[33]);

/* From here on kiln_template_get_or_fallback returns the specialised kernels that have become ready behind
 * their fallbacks. `adopted`, when not null: how many changed. Call it where a change of kernel does no harm,
 * such as before graphs are captured. */
KILN_API kiln_status kiln_service_adopt(kiln_service* service, uint64_t* adopted);

enum { KILN_DEVICE_CURRENT = -1, KILN_DEVICE_NONE = -2 };

/* Parses the manifest and binds to a context: KILN_DEVICE_CURRENT to the calling thread's current one (an
 * error without one), an ordinal to the current one after checking that it is on that device,
 * KILN_DEVICE_NONE to none: compile only, for `arch` (null: the configured one, else sm_90a). Cheap when
 * repeated. */
KILN_API kiln_status kiln_service_open(kiln_service* service, const char* name, int32_t device,
                                       const char* arch, kiln_template** out);

/* ---- scopes
 * -------------------------------------------------------------------------------------------------------------
 * Kernels belong to a scope. What kiln_service_open opens belongs to the service itself and stays until the
 * end, so that captured graphs keep their addresses; what a model or adapter needs may have a scope of its
 * own, and leaves with it. */

KILN_API kiln_status kiln_scope_create(kiln_service* service, kiln_scope** out);
/* As kiln_service_open. */
KILN_API kiln_status kiln_scope_open(kiln_scope* scope, const char* name, int32_t device, const char* arch,
                                     kiln_template** out);
/* Unloads the scope's kernels; its templates stay open and load again when asked. REQUIRES: no kernel of it
 * runs or is part of a graph that will be launched, and no thread is in a call on its templates. What was
 * being made meanwhile (prefetch, get_async) is dropped: its waiters get not_ready. */
KILN_API kiln_status kiln_scope_release(kiln_scope* scope);
/* The same, and the templates go, too. Null is allowed. Before its service. */
KILN_API void kiln_scope_destroy(kiln_scope* scope);

enum { KILN_UNTIL_READY = 0, KILN_UNTIL_IMAGE = 1 };

typedef struct kiln_progress {
  size_t struct_size;
  uint64_t total; /* specialisations of the plan, each once */
  uint64_t done;  /* of them: ready (or its image there), failed or skipped */
  uint64_t ready; /* were ready before */
  uint64_t disk;  /* came from the store, a layer or memory */
  uint64_t compiled, waited, failed;
  uint64_t skipped; /* rows for an arch that is not the device's */
} kiln_progress;

typedef struct kiln_prepare {
  size_t struct_size;
  const char* plan; /* text of a plan or record: [[prewarm]] tables. or null and */
  const char* file; /* the file of such a text */
  int32_t until;    /* KILN_UNTIL_*: loaded into the current context, or only its image in memory and store */
  int32_t device;   /* as kiln_service_open's; KILN_DEVICE_NONE only with KILN_UNTIL_IMAGE */
  const char* arch; /* of rows that name none, with KILN_DEVICE_NONE */
  double deadline_s;  /* seconds from now after which nothing is begun or waited for; 0: none */
  int32_t no_compile; /* nonzero: from memory and disk only */
  void (*on_progress)(const kiln_progress* progress, void* user); /* may be null; one call at a time, on
                                                                     kiln's threads; must not throw */
  void* user;
} kiln_prepare;

/* Makes a plan's kernels ready, in parallel, on threads of kiln's own: the explicit way to make kernels after
 * the seal, also to compile them in mode sealed (an adapter that is loaded while serving). Returns at once;
 * an unreadable plan, an unknown template or a bad value fails here. Kernels belong to `scope`, or to the
 * service when that is null. */
KILN_API kiln_status kiln_service_prepare(kiln_service* service, kiln_scope* scope,
                                          const kiln_prepare* prepare, kiln_preparation** out);
/* Waits at most `seconds` (negative: without limit). KILN_OK: all is done and nothing failed. Errc::deadline:
 * not done yet. Otherwise the first failure, after all is done. `progress` may be null. */
KILN_API kiln_status kiln_preparation_wait(kiln_preparation* preparation, double seconds,
                                           kiln_progress* progress);
/* What has not begun is not begun any more; what is under way ends on its own. on_progress is not called
 * after this has returned. Null is allowed. */
KILN_API void kiln_preparation_destroy(kiln_preparation* preparation);

enum {
  KILN_REMOTE_NONE = 0,    /* no tier is configured, or none was asked yet */
  KILN_REMOTE_WORKS = 1,   /* the breaker is closed */
  KILN_REMOTE_PROBING = 2, /* one request decides whether it closes */
  KILN_REMOTE_BROKEN = 3   /* open: three failures in a row, nobody is kept waiting for it */
};

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
  uint64_t fallbacks;           /* specialisations whose fallback was returned first */
  uint64_t adopted;             /* of them: replaced by the specialised kernel since */
  double compile_saved_ms;      /* what the records that were served had cost; not those from memory */
  uint64_t remote_hits;         /* answered by the fleet's tier */
  /* Asked the tier and not served, by why: not there, no answer in time, no connection or name, turned away
   * (password, rights, memory), an answer that is none, the breaker is open. */
  uint64_t remote_miss_absent, remote_miss_timeout, remote_miss_unreachable, remote_miss_refused,
      remote_miss_protocol, remote_miss_breaker;
  /* There and not believed: of another schema, under another key, not signed by a trusted key, damaged. */
  uint64_t remote_rejected_schema, remote_rejected_key, remote_rejected_signature, remote_rejected_damaged;
  /* Written to the tier; left out because it takes them more slowly, or too large; not taken by the server.
   */
  uint64_t remote_puts, remote_puts_dropped, remote_puts_failed;
  uint64_t remote_leases;        /* compiles for the whole fleet */
  uint64_t remote_waits;         /* kernels that another node was compiling */
  uint64_t remote_takeovers;     /* of them: compiled here, as that node was gone */
  uint64_t remote_wait_timeouts; /* of them: compiled here, as it took longer than the budget */
  uint64_t remote_leases_lost;   /* that ended before their compile: another node may have compiled, too */
  uint64_t remote_reported;      /* missed specialisations that the tier's prewarm job was told of */
  int32_t remote_state;          /* KILN_REMOTE_*: now, of the server that is worst off */
  int32_t remote_servers;
  uint64_t remote_bytes_in, remote_bytes_out;
  double remote_p50_ms, remote_p99_ms; /* round trips, of the slowest server; 0: none yet */
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
  double deadline_s; /* seconds from now to wait for a kernel that is not ready; 0: without limit; negative:
                        it has passed already */
  CUstream stream;   /* when has_stream: a miss is refused if this stream is capturing */
  int32_t has_stream;
} kiln_get;

/* Parameters in manifest order (fewer: the rest take defaults); `names` null, or one name per value. `get`
 * may be null. */
KILN_API kiln_status kiln_template_get(kiln_template* t, const char* const* names, const kiln_value* values,
                                       size_t count, const kiln_get* get, const kiln_kernel** out);
/* The ready kernel, or null (also for values that can never be right). Memory only: no lock, no allocation,
 * no system call, no driver call; never fails. */
KILN_API const kiln_kernel* kiln_template_try_get(kiln_template* t, const kiln_value* values, size_t count);

/* As kiln_template_get, on a thread of kiln's own, which makes the template's context current in itself:
 * works from threads without a context and beside a stream capture. Errors of values, mode and seal come from
 * this call, others from the future. get->stream is not looked at. */
KILN_API kiln_status kiln_template_get_async(kiln_template* t, const char* const* names,
                                             const kiln_value* values, size_t count, const kiln_get* get,
                                             kiln_future** out);
/* Waits at most `seconds` (negative: without limit) for the kernel or the error that it ended in;
 * Errc::deadline: neither yet. */
KILN_API kiln_status kiln_future_wait(kiln_future* future, double seconds, const kiln_kernel** out);
/* *done = 1 when it has ended, well or not. */
KILN_API kiln_status kiln_future_done(kiln_future* future, int32_t* done);
/* What is under way goes on, for others. Null is allowed. */
KILN_API void kiln_future_destroy(kiln_future* future);

/* The same, fire and forget, behind whatever somebody waits for. A template without a device gets its image
 * into memory and store. A failure is an event, and what the next get says. */
KILN_API kiln_status kiln_template_prefetch(kiln_template* t, const char* const* names,
                                            const kiln_value* values, size_t count);

/* The specialised kernel if it is ready or on disk; else, at once, that of the manifest's fallback template,
 * while the specialised one compiles behind. What was returned first is returned until
 * kiln_service_adopt (or, with KILN_ADOPT_AUTOMATICALLY, until the specialised one is ready). The fallback is
 * itself a kernel like any other: make it ready first. invalid_argument: the manifest names no fallback. */
KILN_API kiln_status kiln_template_get_or_fallback(kiln_template* t, const char* const* names,
                                                   const kiln_value* values, size_t count,
                                                   const kiln_get* get, const kiln_kernel** out);

/* Between the two, this thread's misses are refused (not_ready) before any driver call, as with a capturing
 * stream in kiln_get: for code that captures and does not know its stream. They nest. */
KILN_API void kiln_capture_begin(void);
KILN_API void kiln_capture_end(void);

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
/* Another entry point of the same image, which shares its variables: a [[kernel]] of the manifest, with its
 * own arguments and launch. Valid as long as `kernel`; costs no driver call. invalid_argument: there is none
 * of that name, and the message has those there are. */
KILN_API kiln_status kiln_kernel_entry(const kiln_kernel* kernel, const char* name, const kiln_kernel** out);

/* A __device__ or __constant__ variable of the image, in the context that the kernel was loaded in. */
typedef struct kiln_global {
  size_t struct_size;
  uint64_t address; /* in device memory: for cuMemcpy and the like */
  uint64_t bytes;
} kiln_global;
/* That of a [[global]] of the manifest. Valid as long as the kernel. invalid_argument: there is none of that
 * name. */
KILN_API kiln_status kiln_kernel_global(const kiln_kernel* kernel, const char* name, kiln_global* out);

/* An integer constant of the source, read from the image: an [export] of the manifest. invalid_argument:
 * there is none of that name. */
KILN_API kiln_status kiln_kernel_constant(const kiln_kernel* kernel, const char* name, int64_t* out);

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

/* ---- attention
 * -------------------------------------------------------------------------------------------------------------
 * An attention kernel whose manifest has [work_list] reads from a buffer what each block has to do: each tile
 * of rows of q with its kv tokens, balanced over a grid of fixed size and split over kv. That plan is made on
 * the host, before the launch and outside of any capture, for the lengths of one batch; the caller copies it
 * to the device in the stream of the launch. Plan and workspace have sizes that follow from the limits alone:
 * a graph that was captured with them replays with other lengths once another plan was copied into the same
 * buffer. Nothing here makes a driver call or allocates device memory. Thread-safe.
 *
 * A workspace belongs to one launch at a time; it holds nothing between launches and need not be set. A plan
 * may be launched any number of times, one launch after the other, by the kernel that it was made with:
 * another specialisation may have other tiles. The shipped kernels compare what a plan was made for (tiles,
 * group, causality, workers, kv heads, window_left) with their own and the launch's, and end a launch that
 * does not fit with a trap (CUDA_ERROR_LAUNCH_FAILED at the next synchronisation), which no context survives:
 * results of other lengths would be worse. */

/* What no batch of a buffer may pass. */
typedef struct kiln_attention_limits {
  size_t struct_size;
  int32_t max_requests;
  int32_t max_tokens; /* of q, of all requests together; 0: max_requests, as in decode steps */
  int32_t kv_heads;   /* heads of k and v that the kernel is launched for */
  int32_t workers;    /* blocks of the grid; 0: what the manifest says for this device */
} kiln_attention_limits;

typedef struct kiln_attention_sizes {
  size_t struct_size;
  uint64_t plan_bytes;      /* of the plan, on the host and on the device; 16-byte aligned there */
  uint64_t workspace_bytes; /* of the workspace, on the device; 16-byte aligned */
  int32_t workers;          /* to be passed to the launch */
} kiln_attention_sizes;

KILN_API kiln_status kiln_kernel_attention_sizes(const kiln_kernel* kernel,
                                                 const kiln_attention_limits* limits,
                                                 kiln_attention_sizes* out);

/* The lengths of a batch. Arrays are the caller's, in host memory, and are not kept. */
typedef struct kiln_attention_lengths {
  size_t struct_size;
  int32_t requests;         /* 0 to max_requests */
  int32_t page_size;        /* kv tokens of a page; 0: k and v are ragged arrays */
  int32_t window_left;      /* a token sees at most so many before its own place; -1: all. A kernel that was
                               specialised without a window takes -1 only: a struct of zeros, which asks for a
                               window that shows a token itself alone, is refused. It is passed to the launch,
                               too, and a launch with another one traps */
  const int32_t* qo_indptr; /* [requests + 1]: where the tokens of each request begin in q, and the end; null:
                               one token each */
  const int32_t* kv_indptr; /* [requests + 1]: likewise its rows of k and v or, paged, its entries of the page
                               table */
  const int32_t* kv_len;    /* [requests]: kv tokens that count; null: all rows, or what last_page_len says */
  const int32_t* last_page_len; /* [requests]: tokens of its last page, 1 to page_size; not looked at where a
                                   request has no page. Null when kv_len is given or nothing is paged */
} kiln_attention_lengths;

typedef struct kiln_attention_plan {
  size_t struct_size;
  uint64_t bytes;   /* from the buffer's begin: what has to be copied to the device */
  uint32_t items;   /* for blocks to work off: a tile, tiles behind each other, or a part of one */
  uint32_t parts;   /* of them: parts, each of which takes a slot of the workspace */
  uint32_t workers; /* blocks up to the last that has a share: short batches are not spread thin */
} kiln_attention_plan;

/* Writes the plan of a batch into host memory (pinned, if it shall be copied asynchronously; never read, so
 * write-combined memory is fine) of at least plan_bytes, from an address that 4 divides. A request may have
 * no tokens, no kv, or more tokens than kv. `out` may be null. invalid_argument: the kernel has no [work_list],
 * lengths that pass the limits, are negative or shrink, a buffer that is too small or not aligned: the
 * message names the array, the entry and what was allowed, and nothing was written. The limits must be those
 * of the sizes. */
KILN_API kiln_status kiln_kernel_attention_plan(const kiln_kernel* kernel,
                                                const kiln_attention_limits* limits,
                                                const kiln_attention_lengths* lengths, void* buffer,
                                                size_t buffer_bytes, kiln_attention_plan* out);

/* ---- log
 * -------------------------------------------------------------------------------------------------------------
 */

enum { KILN_LOG_TRACE = 0, KILN_LOG_DEBUG, KILN_LOG_INFO, KILN_LOG_WARNING, KILN_LOG_ERROR, KILN_LOG_OFF };

/* Sends this copy of kiln's log lines of `level` and above to `sink` instead of stderr; null: stderr again.
 * Default: KILN_LOG_WARNING, or what KILN_LOG says; this call beats that. The message is zero-terminated and
 * gone when the sink returns. The sink may be called by several threads at once and may call kiln. When this
 * has returned, the sink before is not running and is not called any more (but for a call that it made this
 * one from). A forked child writes to stderr again. */
KILN_API kiln_status kiln_set_log(void (*sink)(int32_t level, const char* message, size_t size, void* user),
                                  void* user, int32_t level);

#ifdef __cplusplus
}
#endif
#endif
