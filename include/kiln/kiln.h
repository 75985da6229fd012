/* kiln's C ABI. These functions are the only symbols that the library exports.
 * The C++ API (kiln/kiln.hpp) is an inline layer over them.
 *
 * Conventions:
 *
 * - Errors. A function returns a kiln_status unless its comment says otherwise.
 *   After a failure, kiln_last_error() of the same thread has the details.
 *   Codes such as invalid_argument and not_ready are values of kiln::Errc (kiln/error.hpp).
 * - Struct sizes. A struct that may grow begins with struct_size.
 *   The caller sets it to sizeof the struct. A smaller size than the library knows comes from an older
 *   caller, and the missing fields take their defaults.
 * - Strings. Strings are UTF-8 and end with a zero byte. kiln copies the strings that it is given.
 *   A string that kiln returns lives as long as the object that it came from.
 * - Threads. Every handle may be used by several threads at once, unless its comment says otherwise.
 * - Contexts. No function creates a CUDA context or changes the calling thread's current one.
 */
#ifndef KILN_KILN_H
#define KILN_KILN_H

#include <stddef.h>
#include <stdint.h>

#define KILN_VERSION_MAJOR 0
#define KILN_VERSION_MINOR 2
#define KILN_VERSION_PATCH 0

#define KILN_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* A program that links the static library may be installed anywhere. It tells the library its prefix here.
 * kiln's CMake package defines KILN_INSTALL_PREFIX. Other builds may define it as a string literal.
 * The library searches below this prefix when its templates and its compile worker are not beside it. */
#ifdef KILN_INSTALL_PREFIX
extern __attribute__((weak, visibility("hidden"))) const char kiln_install_prefix[];
const char kiln_install_prefix[] = KILN_INSTALL_PREFIX;
#endif

/* These are the types of cuda.h, which need not be included. */
typedef struct CUstream_st* CUstream;
typedef struct CUfunc_st* CUfunction;

/** Configuration, cache, compiler and templates. One for each process is usual. */
typedef struct kiln_service kiln_service;
/** One template, bound to a device, a context and an arch. Its scope owns it. */
typedef struct kiln_template kiln_template;
/** Owner of templates and kernels within a service. */
typedef struct kiln_scope kiln_scope;
/** One loaded kernel. Its scope owns it. It is valid until the scope is released. */
typedef struct kiln_kernel kiln_kernel;
/** All members of a family, loaded. Its scope owns it. It is valid until the scope is released. */
typedef struct kiln_family kiln_family;
/** A kernel that is being made ready. */
typedef struct kiln_future kiln_future;
/** All kernels of a plan, while they are being made ready. */
typedef struct kiln_preparation kiln_preparation;

/** A value of kiln::Errc (kiln/error.hpp), which documents each. */
typedef int32_t kiln_status;
enum { KILN_OK = 0 };

/** The details of a failed call. */
typedef struct kiln_error {
  size_t struct_size;
  kiln_status status;
  const char* message;        /**< names the thing, the value and what was allowed */
  const char* specialization; /**< compile errors: "rms_norm T=bf16 H=4096"; otherwise "" */
  const char* options;        /**< compile errors: the compiler's options, one a line; otherwise "" */
  const char* log;            /**< compile errors: the first 16 KB of the compiler's log; otherwise "" */
} kiln_error;

/** The error of this thread's last failing call. Valid until this thread's next failing call. Never null. */
KILN_API const kiln_error* kiln_last_error(void);

/** The version as text, such as "0.2.0". */
KILN_API const char* kiln_version(void);

/* ---- Service ------------------------------------------------------------------------------------------- */

/** A mode says when a service may compile. */
enum {
  KILN_MODE_DEFAULT = 0, /**< KILN_MODE, or else jit until a seal and sealed after it */
  KILN_MODE_JIT = 1,     /**< compiles what is missing */
  KILN_MODE_WARN = 2,    /**< compiles what is missing, and reports each compile after the seal as an event */
  KILN_MODE_SEALED = 3   /**< never compiles: kernels load from disk until the seal, then only from memory */
};

/** When a specialised kernel replaces the fallback that was returned in its place. */
enum {
  KILN_ADOPT_WHEN_ASKED = 0,   /**< in kiln_service_adopt() */
  KILN_ADOPT_AUTOMATICALLY = 1 /**< as soon as the specialised kernel is ready */
};

/** The kinds of events. Each comment names the fields of kiln_event that the kind sets. */
enum {
  KILN_EVENT_COMPILE_STARTED = 1,
  KILN_EVENT_COMPILE_FINISHED = 2, /**< milliseconds: duration of the compile; bytes: size of the image */
  KILN_EVENT_COMPILE_FAILED = 3,   /**< milliseconds; message: first line of the error */
  KILN_EVENT_WAIT_STARTED = 4,     /**< a wait for the compile of another thread or process */
  KILN_EVENT_WAIT_FINISHED = 5,    /**< milliseconds; also after a failure or at a deadline */
  KILN_EVENT_LOADED = 6,           /**< milliseconds in the driver; bytes: size of the image */
  KILN_EVENT_EVICTED = 7,          /**< count: evicted records; specialization: the new record */
  KILN_EVENT_MISS_AFTER_SEAL = 8,  /**< mode sealed refuses the kernel, mode warn compiles it */
  KILN_EVENT_ADOPTED = 9           /**< the specialised kernel has replaced its fallback */
};

/** An event of one specialisation. The strings live for the call.
 *  A field that the kind does not set is 0 or "". */
typedef struct kiln_event {
  size_t struct_size;
  int32_t kind;               /**< KILN_EVENT_* */
  const char* specialization; /**< "rms_norm T=bf16 H=4096" */
  const char* arch;           /**< "sm_90a" */
  const char* message;
  double milliseconds;
  uint64_t count, bytes;
} kiln_event;

/**
 * Receives the events of a service.
 *
 * It is called on the thread on which the event happens, which may be one of kiln's.
 * It must be thread-safe, must not throw, and should be quick, because the event waits for it.
 * It may call kiln: no lock is held that a call of kiln needs.
 * It must not wait for the kernel that the event is about.
 * It is not called after kiln_service_destroy() has returned.
 */
typedef void (*kiln_event_callback)(const kiln_event* event, void* user);

/**
 * The configuration of a service. A field that is set here beats every other source.
 *
 * For a field that is zero or null, the service takes the first of these that has a value:
 * the KILN_* environment variable, the configuration file, the default.
 */
typedef struct kiln_options {
  size_t struct_size;
  /** Nonzero: environment and configuration file are ignored. */
  int32_t hermetic;
  /** KILN_MODE_*. Default: jit, and sealed after a seal. */
  int32_t mode;
  /** Directory of the writable store. */
  const char* cache_dir;
  /** Template directories, colon-separated.
   *  They are searched before KILN_TEMPLATE_PATH and the installed ones. */
  const char* template_path;
  /** Include directories, colon-separated. */
  const char* include_path;
  /** The CUDA toolkit, which has NVRTC and the toolkit's headers. */
  const char* cuda_home;
  /** The toolchains whose records may be served.
   *  "own", "any", or the first hex digits of a toolchain digest. */
  const char* toolchain;
  /** The arch of templates that are opened without a device: "90", "sm_90" or "sm_90a". */
  const char* arch;
  /** The executable of the compile worker. */
  const char* worker;
  /** Compile workers that run at once. 0: as many as there are cores. */
  int32_t jobs;
  /** Seconds after which a compile is killed. At most 1e7. 0: 600. */
  double compile_deadline_s;
  /** Read-only stores that are searched before cache_dir: absolute directories, colon-separated.
   *  Root or this user must own them, and nobody else may write them. */
  const char* cache_layers;
  /** Bytes that cache_dir may take: "512M", "5G" (powers of 1024). */
  const char* cache_max_size;
  /** File to which the service appends each specialisation that was requested and was not ready.
   *  The file is a trace, which `kiln prewarm` takes as a plan. Templates from memory are written
   *  beside it. */
  const char* record;
  /** Bytes that all compiles of this process may take together: "4G". Null: derived from the machine. */
  const char* compile_memory;
  /** Receives events. Null: no events. */
  kiln_event_callback on_event;
  /** Passed to on_event. */
  void* event_user;
  /** KILN_ADOPT_* */
  int32_t adopt;
  /** Servers of the fleet's tier, comma-separated.
   *  Forms: "redis://[user:password@]host[:port]", "rediss://...", "redis+unix:///path". */
  const char* remote;
  /** "locked": the service only reads from the tier (default).
   *  "fleet": it also writes signed records, and one node compiles for all. */
  const char* remote_mode;
  /** Public keys in minisign's format, or their files, comma-separated.
   *  A record of the tier is used when one of these keys signed it. */
  const char* remote_key;
  /** File of the secret key that signs the records which this service writes to the tier. */
  const char* remote_sign;
  /** Seconds that this service waits for the compile of another node. 0: 60. */
  double remote_budget_s;
  /** "never": in mode sealed only kiln_service_prepare() asks the tier (default).
   *  "ask": in mode sealed a get before the seal asks it, too. */
  const char* remote_sealed;
} kiln_options;

/** Creates a service. Touches no GPU and starts no process. `options` may be null. */
KILN_API kiln_status kiln_service_create(const kiln_options* options, kiln_service** out);
/**
 * Destroys a service. Ends the compiles that it started, waits for them, and unloads its kernels.
 *
 * REQUIRES: none of its kernels runs, and its scopes, futures and preparations are destroyed.
 * Null is allowed. Never fails.
 */
KILN_API void kiln_service_destroy(kiln_service* service);

/** Registers a template from memory: manifest, source and reference source, which may be null.
 *  The manifest needs no `source`. The template stays until the service is destroyed. */
KILN_API kiln_status kiln_service_add_template(kiln_service* service, const char* manifest,
                                               const char* source, const char* reference);
/**
 * Registers templates from files: `path` is a directory of manifests, or the manifest NAME.toml of one template.
 *
 * It is searched after the configured directories. Edited files are read again, as in those.
 * The command `kiln` finds such templates only where KILN_TEMPLATE_PATH names their directory.
 * io: there is no such file or directory. manifest: the file has a mistake.
 */
KILN_API kiln_status kiln_service_add_template_path(kiln_service* service, const char* path);

/**
 * Seals one service. A seal cannot be undone.
 *
 * | mode | after the seal |
 * |---|---|
 * | sealed, or never set | only kernels in memory are returned |
 * | warn | missing kernels are still compiled, and each one is an event |
 * | jit | missing kernels are still compiled |
 *
 * A refused miss fails at once with not_ready. It makes no driver call and touches no file.
 * Its message has the row of a plan that makes the kernel ready.
 * In the modes jit and warn the seal logs one warning that compiles go on.
 * Mode sealed does not compile before the seal either, but loads what is on disk.
 * After the seal, kiln_service_prepare() is the only call that makes kernels ready.
 */
KILN_API kiln_status kiln_service_seal(kiln_service* service);

/**
 * Seals every service of this process, now and in future. A seal cannot be undone.
 *
 * It reaches every copy of kiln in the process: shared, static, hidden, or loaded later.
 * It does not reach copies that dlmopen has loaded into another linker namespace.
 * A service whose mode was never set takes mode sealed. A service in mode jit or warn keeps its mode.
 * A forked child stays sealed. Any thread may call this at any time.
 */
KILN_API kiln_status kiln_process_seal(void);

/** Text that kiln made. Release it with kiln_text_release(). */
typedef struct kiln_text {
  size_t struct_size;
  const char* data; /**< ends with a zero byte, unless it is a blob */
  size_t size;      /**< bytes, without the zero byte */
  void* owner;
} kiln_text;
/** Releases a text. Null is allowed. */
KILN_API void kiln_text_release(kiln_text* text);

/**
 * Lists the specialisations that were refused because of the seal.
 *
 * The list is a plan for `kiln prewarm` or kiln_service_prepare().
 * Each specialisation has one row, in the order of the first misses. At most 10,000 rows are kept.
 * The text is "" when nothing was refused.
 */
KILN_API kiln_status kiln_service_missing(kiln_service* service, kiln_text* out);

/**
 * Writes a digest of the loaded kernels and of the blobs that this process has used: 32 hex digits and a zero
 * byte.
 *
 * The digest covers specialisations, resolved parameters, archs and the bytes of the images, in any order. It
 * covers space, key, compatibility and content of each blob that was read or stored.
 * Two ranks with the same fingerprint run the same code.
 */
KILN_API kiln_status kiln_service_fingerprint(kiln_service* service, char out[33]);

/**
 * Describes what the fingerprint covers, as a JSON object, so that two ranks find what differs.
 *
 * "fingerprint" is that of kiln_service_fingerprint(). "spaces" is an array with an item for each space in use:
 * "space" ("kernels", or a space of blobs), "fingerprint" of the space alone, and "items", an object of names and
 * arrays of digests. A kernel's name has its specialisation and arch. A blob's name has its key, and after a line
 * break its compatibility; a name that is no UTF-8 is shown as "bytes " and hex digits.
 */
KILN_API kiln_status kiln_service_describe_fingerprint(kiln_service* service, kiln_text* out);

/**
 * Lets kiln_template_get_or_fallback() return the specialised kernels that have become ready meanwhile.
 *
 * Call it where a change of kernel does no harm, such as before graphs are captured.
 * `adopted` receives how many kernels changed. It may be null.
 */
KILN_API kiln_status kiln_service_adopt(kiln_service* service, uint64_t* adopted);

/** Launches of one kernel that could not do their work. The strings live until the callback returns. */
typedef struct kiln_device_fault {
  size_t struct_size;
  const char* template_name;
  const char* specialization;
  const char* reason; /**< of the last of these launches, as a sentence */
  int32_t code;       /**< the reason as a number; from 256 on, the template decides what it means */
  int32_t device;     /**< ordinal */
  uint32_t launches;  /**< launches that failed since the last call */
} kiln_device_fault;
typedef void (*kiln_device_fault_callback)(const kiln_device_fault* fault, void* user);

/**
 * Names the kernels of which a launch could not do its work, such as an attention launch with a plan of another
 * kernel.
 *
 * The callback gets each kernel that has new faults, in this thread and before the call returns.
 * A fault is reported once. Launches that still run are reported by a later call.
 * The call reads a few words from the device for each loaded kernel that can report faults.
 * It waits for no other stream, and may be made while a stream captures.
 * A sealed service reports faults, too. Faults of kernels that were unloaded are lost. A forked child has none.
 * driver: a context is lost or destroyed.
 */
KILN_API kiln_status kiln_service_device_faults(kiln_service* service, kiln_device_fault_callback callback,
                                                void* user);

enum { KILN_DEVICE_CURRENT = -1, KILN_DEVICE_NONE = -2 };

/**
 * Parses a template's manifest and binds the template to a context. Repeated calls are cheap.
 *
 * | device | the template is bound to |
 * |---|---|
 * | KILN_DEVICE_CURRENT | the calling thread's current context (no_driver: there is none) |
 * | an ordinal | the current context, which must be on that device |
 * | KILN_DEVICE_NONE | no context: it can only compile, for `arch` |
 *
 * `arch` counts with KILN_DEVICE_NONE only. Null: the configured arch, or else sm_90a.
 * The template belongs to the service. Errors: unknown_template, manifest, no_driver, unsupported_arch.
 */
KILN_API kiln_status kiln_service_open(kiln_service* service, const char* name, int32_t device,
                                       const char* arch, kiln_template** out);

/* ---- Scopes -------------------------------------------------------------------------------------------- *
 * Each kernel belongs to a scope. A template that kiln_service_open() opens belongs to the service itself.
 * Its kernels stay loaded until the service ends, so captured graphs keep their addresses.
 * A model or an adapter may have a scope of its own, which unloads its kernels when the model leaves. */

/** Creates a scope. Destroy it before its service. */
KILN_API kiln_status kiln_scope_create(kiln_service* service, kiln_scope** out);
/** Opens a template that belongs to the scope. Arguments and errors are as in kiln_service_open(). */
KILN_API kiln_status kiln_scope_open(kiln_scope* scope, const char* name, int32_t device, const char* arch,
                                     kiln_template** out);
/**
 * Unloads the scope's kernels. Its templates stay open, and load kernels again on request.
 *
 * REQUIRES: no kernel of the scope runs or is part of a graph that will be launched,
 * and no thread is in a call on its templates.
 * Work that kiln_template_prefetch() or kiln_template_get_async() began is dropped.
 * Its waiters get not_ready.
 */
KILN_API kiln_status kiln_scope_release(kiln_scope* scope);
/** Releases the scope and destroys its templates. Null is allowed.
 *  REQUIRES: the conditions of kiln_scope_release(). */
KILN_API void kiln_scope_destroy(kiln_scope* scope);

enum { KILN_UNTIL_READY = 0, KILN_UNTIL_IMAGE = 1 };

/** How far a preparation is. Each specialisation of the plan is counted once. */
typedef struct kiln_progress {
  size_t struct_size;
  uint64_t total; /**< specialisations of the plan */
  uint64_t done;  /**< finished ones: ready (or the image is there), failed or skipped */
  uint64_t ready; /**< were ready before */
  uint64_t disk;  /**< came from the store, a layer or memory */
  uint64_t compiled, waited, failed;
  uint64_t skipped; /**< rows for another arch than the device's */
} kiln_progress;

/** A plan, and how far to prepare its kernels. Set `plan` or `file`. */
typedef struct kiln_prepare {
  size_t struct_size;
  const char* plan; /**< text of a plan or trace: [[prewarm]] tables */
  const char* file; /**< file with such a text */
  /** KILN_UNTIL_READY: kernels are loaded. KILN_UNTIL_IMAGE: images are in memory and store. */
  int32_t until;
  int32_t device;     /**< as in kiln_service_open(); KILN_DEVICE_NONE only with KILN_UNTIL_IMAGE */
  const char* arch;   /**< with KILN_DEVICE_NONE: the arch of rows that name none */
  double deadline_s;  /**< seconds from now after which nothing is begun or waited for; 0: no deadline */
  int32_t no_compile; /**< nonzero: kernels come from memory and disk only */
  /** Receives the progress, on kiln's threads, one call at a time. May be null. Must not throw. */
  void (*on_progress)(const kiln_progress* progress, void* user);
  void* user; /**< passed to on_progress */
} kiln_prepare;

/**
 * Makes all kernels of a plan ready, in parallel, on kiln's threads. Returns at once.
 *
 * This is the one way to make kernels ready after the seal. It also compiles in mode sealed.
 * Use it for an adapter that is loaded while the engine serves.
 * An unreadable plan, an unknown template or a bad value fails here.
 * Later errors come from kiln_preparation_wait().
 * The kernels belong to `scope`. Null: they belong to the service.
 */
KILN_API kiln_status kiln_service_prepare(kiln_service* service, kiln_scope* scope,
                                          const kiln_prepare* prepare, kiln_preparation** out);
/**
 * Waits at most `seconds` for a preparation. A negative value waits without limit. `progress` may be null.
 *
 * KILN_OK: everything is done and nothing failed. deadline: it is not done yet.
 * Any other status is the first failure, and is returned once everything is done.
 */
KILN_API kiln_status kiln_preparation_wait(kiln_preparation* preparation, double seconds,
                                           kiln_progress* progress);
/** Cancels what has not begun. What has begun ends on its own.
 *  on_progress is not called after this has returned. Null is allowed. */
KILN_API void kiln_preparation_destroy(kiln_preparation* preparation);

/** The state of a server of the fleet's tier. */
enum {
  KILN_REMOTE_NONE = 0,    /**< no tier is configured, or it was not asked yet */
  KILN_REMOTE_WORKS = 1,   /**< requests are sent */
  KILN_REMOTE_PROBING = 2, /**< one request decides whether others are sent again */
  KILN_REMOTE_BROKEN = 3   /**< three requests in a row have failed: no call waits for this server */
};

/** Counters of a service since it was created. */
typedef struct kiln_stats {
  size_t struct_size;
  uint64_t memory_hits;       /**< served from an image in memory; gets of a ready kernel are not counted */
  uint64_t disk_hits;         /**< served by the store, from a record of this service's toolchain */
  uint64_t foreign_toolchain; /**< served by the store, from a record of another toolchain */
  uint64_t compiles, compile_failures;
  uint64_t remembered_failures; /**< answered with the error of an earlier compile */
  /** Calls that waited for the compile of another thread or process, whether it succeeded or not. */
  uint64_t waits;
  /* Searched in the store and not served, by reason. */
  uint64_t miss_absent, miss_damaged, miss_other_key_text, miss_gate_timeout, miss_unreadable, miss_no_store;
  /* puts_skipped: the kernel was compiled and served, but not stored. It is the sum of the five after it. */
  uint64_t puts, puts_present, puts_skipped;
  uint64_t skipped_read_only;    /**< the store is read-only */
  uint64_t skipped_gate_timeout; /**< other processes held the store's gate for too long */
  uint64_t skipped_full;         /**< the disk, the quota, the file-size limit or the map is full */
  uint64_t skipped_failed;       /**< any other fault of the store */
  uint64_t skipped_queue_full;   /**< kernels were compiled faster than the disk takes them */
  uint64_t convoy_left;     /**< compiled without the host's lock: two holders had ended without a record */
  uint64_t flight_timeouts; /**< compiled without the host's lock: its holder passed the compile deadline */
  uint64_t unpublishable; /**< compiled and served, but not published: the key cannot see all that was read */
  uint64_t sealed_misses; /**< refused because of the seal */
  uint64_t loads;         /**< kernels loaded */
  uint64_t device_bytes;  /**< bytes of the images that are loaded */
  double compile_ms;      /**< milliseconds spent in compilers for this service */
  uint64_t evictions;     /**< records that made room in the store */
  uint64_t layer_hits;    /**< served by a read-only layer, from a record of this service's toolchain */
  uint64_t fallbacks;     /**< specialisations whose fallback was returned first */
  uint64_t adopted;       /**< fallbacks that the specialised kernel has replaced */
  /** Milliseconds that the served records had cost. Images in memory do not count. */
  double compile_saved_ms;
  uint64_t remote_hits; /**< served by the fleet's tier */
  /* Searched in the tier and not served, by reason. absent: the tier has no such record.
   * timeout: no answer in time. unreachable: no connection, or an unknown name.
   * refused: password, rights, memory or TLS. protocol: a wrong answer. breaker: the server is broken. */
  uint64_t remote_miss_absent, remote_miss_timeout, remote_miss_unreachable, remote_miss_refused,
      remote_miss_protocol, remote_miss_breaker;
  /* Found in the tier and not used: another schema, another key, no signature by a trusted key, damaged. */
  uint64_t remote_rejected_schema, remote_rejected_key, remote_rejected_signature, remote_rejected_damaged;
  uint64_t remote_puts;          /**< records written to the tier */
  uint64_t remote_puts_dropped;  /**< records left out: too large, or the tier takes them too slowly */
  uint64_t remote_puts_failed;   /**< records that the server refused */
  uint64_t remote_leases;        /**< compiles for the whole fleet */
  uint64_t remote_waits;         /**< kernels that another node was compiling */
  uint64_t remote_takeovers;     /**< waits that ended in a compile here, because the other node was gone */
  uint64_t remote_wait_timeouts; /**< waits that ended in a compile here for any other reason */
  uint64_t remote_leases_lost;   /**< leases that ended before their compile: two nodes may have compiled */
  uint64_t remote_reported;      /**< missed specialisations that the tier's prewarm job was told of */
  int32_t remote_state;          /**< KILN_REMOTE_* of the server in the worst state, now */
  int32_t remote_servers;
  uint64_t remote_bytes_in, remote_bytes_out;
  double remote_p50_ms, remote_p99_ms; /**< round trips of the slowest server; 0: none yet */
  uint64_t other_arch; /**< served by an image for another arch that this device runs, such as sm_100f */
} kiln_stats;

/** Reads the counters. Fills the fields that fit into out->struct_size. */
KILN_API kiln_status kiln_service_stats(kiln_service* service, kiln_stats* out);

/* ---- Kernels ------------------------------------------------------------------------------------------- */

enum {
  KILN_VALUE_UNSET = 0,
  KILN_VALUE_INTEGER = 1,
  KILN_VALUE_BOOLEAN = 2,
  KILN_VALUE_DTYPE = 3,
  KILN_VALUE_TEXT = 4
};

/** The value of a parameter. UNSET takes the manifest's default.
 *  TEXT is accepted for every kind of parameter. */
typedef struct kiln_value {
  int32_t kind;      /**< KILN_VALUE_* */
  int32_t text_size; /**< bytes of `text`, which needs no zero byte at its end */
  int64_t integer;   /**< an integer, a boolean as 0 or 1, or the ordinal of a kiln::Dtype */
  const char* text;
} kiln_value;

/** How a get may wait. */
typedef struct kiln_get {
  size_t struct_size;
  /** Seconds from now to wait for a kernel that is not ready.
   *  0: no limit. Negative: the deadline has passed. */
  double deadline_s;
  /** With has_stream: a kernel that is not ready is refused while this stream captures. */
  CUstream stream;
  int32_t has_stream;
} kiln_get;

/**
 * Returns the kernel for these parameters, and makes it ready when it is not.
 *
 * `values` are in the manifest's order, and missing ones at the end take their defaults.
 * With `names`, each value has a name instead. `get` may be null.
 * For a ready kernel this takes no lock, allocates nothing, and makes no system call and no driver call.
 * Otherwise the kernel comes from disk, from the fleet's tier or from the compiler, and is loaded.
 * Callers that want the same kernel wait for one compile, each until its own deadline.
 */
KILN_API kiln_status kiln_template_get(kiln_template* t, const char* const* names, const kiln_value* values,
                                       size_t count, const kiln_get* get, const kiln_kernel** out);
/**
 * Returns the kernel if it is ready, and null otherwise.
 * Null also stands for values that the template refuses.
 *
 * It takes no lock, allocates nothing, and makes no system call and no driver call. It never fails.
 */
KILN_API const kiln_kernel* kiln_template_try_get(kiln_template* t, const kiln_value* values, size_t count);

/**
 * Does what kiln_template_get() does, on one of kiln's threads with the template's context.
 *
 * It works from threads without a context and beside a stream capture. get->stream is ignored.
 * Errors of values, mode and seal are returned here. All others come from the future.
 */
KILN_API kiln_status kiln_template_get_async(kiln_template* t, const char* const* names,
                                             const kiln_value* values, size_t count, const kiln_get* get,
                                             kiln_future** out);
/** Waits at most `seconds` for the kernel or its error. A negative value waits without limit.
 *  deadline: there is neither yet. */
KILN_API kiln_status kiln_future_wait(kiln_future* future, double seconds, const kiln_kernel** out);
/** Sets *done to 1 once the future has a kernel or an error, and to 0 before. */
KILN_API kiln_status kiln_future_done(kiln_future* future, int32_t* done);
/** Destroys a future. The work that has begun goes on. Null is allowed. */
KILN_API void kiln_future_destroy(kiln_future* future);

/**
 * Begins to make a kernel ready, after all kernels that callers wait for. Returns at once.
 *
 * A template without a device gets its image into memory and store.
 * A failure is an event, and the next get returns it.
 */
KILN_API kiln_status kiln_template_prefetch(kiln_template* t, const char* const* names,
                                            const kiln_value* values, size_t count);

/**
 * Returns the specialised kernel if it is ready or on disk, and the fallback template's kernel otherwise.
 *
 * When the fallback is returned, the specialised kernel is compiled in the background.
 * The fallback is returned until kiln_service_adopt() is called.
 * With KILN_ADOPT_AUTOMATICALLY it is returned until the specialised kernel is ready.
 * The fallback is a kernel like any other: make it ready first. Both take the same arguments.
 * invalid_argument: the manifest names no fallback.
 */
KILN_API kiln_status kiln_template_get_or_fallback(kiln_template* t, const char* const* names,
                                                   const kiln_value* values, size_t count,
                                                   const kiln_get* get, const kiln_kernel** out);

/** From here to kiln_capture_end(), this thread's misses are refused (not_ready) before any driver call.
 *  This is for code that captures a stream without knowing which. Pairs may nest. */
KILN_API void kiln_capture_begin(void);
/** Ends what kiln_capture_begin() began. */
KILN_API void kiln_capture_end(void);

/** Where an image came from. */
enum {
  KILN_OUTCOME_MEMORY = 0, /**< it was in memory */
  KILN_OUTCOME_DISK,       /**< the writable store */
  KILN_OUTCOME_LAYER,      /**< a read-only layer */
  KILN_OUTCOME_REMOTE,     /**< the fleet's tier */
  KILN_OUTCOME_COMPILED,   /**< this call compiled it */
  KILN_OUTCOME_WAITED      /**< another thread or process compiled it meanwhile */
};

/** The bytes of a compiled kernel. */
typedef struct kiln_image {
  size_t struct_size;
  int32_t outcome; /**< KILN_OUTCOME_* */
  char key[65];    /**< the key as hex digits */
  char arch[16];
  const void* bytes; /**< the cubin; valid until kiln_image_release() */
  size_t size;
  const char* lowered_name; /**< the kernel's symbol in the cubin */
  const char* specialization;
  void* owner;
} kiln_image;

/** Gets only the image. Needs no GPU and loads nothing. Release the image with kiln_image_release(). */
KILN_API kiln_status kiln_template_compile(kiln_template* t, const char* const* names,
                                           const kiln_value* values, size_t count, kiln_image* out);
/** Releases an image. Null is allowed. */
KILN_API void kiln_image_release(kiln_image* image);

/** Facts about a kernel. */
typedef struct kiln_kernel_info {
  size_t struct_size;
  int32_t outcome;       /**< KILN_OUTCOME_*: where the image came from */
  char key[65];          /**< the key as hex digits */
  uint32_t registers;    /**< for each thread */
  uint32_t spill_bytes;  /**< stores and loads, for each thread */
  uint32_t shared_bytes; /**< static shared memory of a block */
  uint32_t max_threads;  /**< threads that a block may have; 0: the source sets no bound */
  uint32_t argument_count;
  const char* specialization;
  const char* lowered_name; /**< the kernel's symbol in the cubin */
  const char* arch;         /**< of the image: "sm_90a", or "sm_100f" where that serves a device of 10.3 */
} kiln_kernel_info;

/** Reads the facts about a kernel. Makes no driver call. */
KILN_API kiln_status kiln_kernel_get_info(const kiln_kernel* kernel, kiln_kernel_info* out);
/**
 * Returns another entry point of the same image, which is a [[kernel]] of the manifest.
 *
 * It has its own arguments and launch. Entry points of an image share its variables.
 * The result is valid as long as `kernel`. It costs no driver call.
 * invalid_argument: there is no entry point of that name. The message lists those that exist.
 */
KILN_API kiln_status kiln_kernel_entry(const kiln_kernel* kernel, const char* name, const kiln_kernel** out);

/** A __device__ or __constant__ variable of an image, in the context that the kernel was loaded into. */
typedef struct kiln_global {
  size_t struct_size;
  uint64_t address; /**< device memory, for cuMemcpy and similar calls */
  uint64_t bytes;
} kiln_global;
/** Finds the variable of a [[global]] of the manifest. It is valid as long as the kernel.
 *  invalid_argument: there is no global of that name. */
KILN_API kiln_status kiln_kernel_global(const kiln_kernel* kernel, const char* name, kiln_global* out);

/** Reads an integer constant of the source from the image: an [export] of the manifest.
 *  invalid_argument: there is no export of that name. */
KILN_API kiln_status kiln_kernel_constant(const kiln_kernel* kernel, const char* name, int64_t* out);

/** Returns the driver's function, for callers that launch it themselves.
 *  It is valid as long as the kernel. */
KILN_API CUfunction kiln_kernel_function(const kiln_kernel* kernel);

enum {
  KILN_ARG_POINTER = 0,
  KILN_ARG_SIGNED = 1,
  KILN_ARG_UNSIGNED = 2,
  KILN_ARG_FLOAT = 3,
  KILN_ARG_BYTES = 4
};

/** The type of one launch argument, as the caller has it.
 *  kiln converts integers and floats to the declared width when the value fits. */
typedef struct kiln_arg_type {
  uint32_t kind; /**< KILN_ARG_* */
  uint32_t size; /**< bytes: 1, 2, 4, 8, or the size of a struct */
} kiln_arg_type;

/**
 * Launches a kernel with the grid, block and shared memory of its manifest.
 *
 * data[i] points to argument i, at any alignment. kiln reads it before the call returns.
 * Arguments are in the manifest's order, and [runtime] values follow them.
 * Optional arguments at the end may be left out when the manifest has no [runtime] values.
 * REQUIRES: the kernel's context is current.
 *
 * | check | when |
 * |---|---|
 * | count and types of the arguments | once for a list of types; a kernel remembers eight lists |
 * | values, alignment of pointers, [[require]] | at every launch |
 *
 * A grid without blocks, as for 0 rows, launches nothing and succeeds.
 */
KILN_API kiln_status kiln_kernel_launch(const kiln_kernel* kernel, CUstream stream,
                                        const kiln_arg_type* types, const void* const* data, size_t count);

/**
 * Returns one handle over all members of a template whose manifest has [family], and makes them ready.
 *
 * `values` are as in kiln_template_get(), without the family's parameter: each launch picks it. `get` may be null.
 * Members that are not ready are made at the same time, on kiln's threads with the template's context. Nothing is
 * compiled or loaded by a launch, so a stream may capture launches.
 * A member whose better kernel is adopted later is replaced in the handle. Keep the handle: a call resolves every member.
 * invalid_argument: the manifest has no [family], or the family's parameter is given.
 * not_ready: a seal or a capture refuses members. The message names each, and kiln_service_missing() lists them.
 */
KILN_API kiln_status kiln_template_get_family(kiln_template* t, const char* const* names,
                                              const kiln_value* values, size_t count, const kiln_get* get,
                                              const kiln_family** out);
/**
 * Launches the member that serves the family's argument: the first one whose edge is not below its value.
 * Values above all edges are served by the last member. Everything else is as in kiln_kernel_launch().
 */
KILN_API kiln_status kiln_family_launch(const kiln_family* family, CUstream stream,
                                        const kiln_arg_type* types, const void* const* data, size_t count);
/** Returns the member that serves `value` of the family's argument. It is a kernel like any other. */
KILN_API kiln_status kiln_family_member(const kiln_family* family, int64_t value, const kiln_kernel** out);

/** Facts about a family. */
typedef struct kiln_family_info {
  size_t struct_size;
  const char* by;        /**< the argument that picks the member */
  const char* parameter; /**< the parameter whose values are the edges */
  uint32_t by_index;     /**< of the argument, from 0 */
  uint32_t member_count;
  const int64_t* edges; /**< [member_count], ascending: the greatest value that each member is for */
} kiln_family_info;

/** Reads the facts about a family. */
KILN_API kiln_status kiln_family_get_info(const kiln_family* family, kiln_family_info* out);

/** The geometry of a raw launch. */
typedef struct kiln_launch_config {
  size_t struct_size;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes; /**< dynamic shared memory of a block */
  uint32_t cluster[3];   /**< zeros: no clusters */
  int32_t pdl;           /**< nonzero: programmatic dependent launch */
  int32_t cooperative;   /**< nonzero: cooperative launch */
  CUstream stream;
} kiln_launch_config;

/**
 * Launches with a geometry and parameter pointers as cuLaunchKernelEx takes them. kiln checks nothing.
 *
 * Where the configuration needs them, kiln first allows the function more than 48 KiB of dynamic
 * shared memory, and clusters of more than 8 blocks.
 */
KILN_API kiln_status kiln_kernel_launch_raw(const kiln_kernel* kernel, const kiln_launch_config* config,
                                            void** parameters);

/* ---- Operators ------------------------------------------------------------------------------------------ *
 * A template whose manifest has [bind] is an operator: a call takes tensors, and kiln finds parameters, arguments
 * and outputs in them. */

/** A tensor. The layout is that of DLPack's DLTensor, and a pointer to one may be passed. */
typedef struct kiln_tensor {
  void* data;
  int32_t device_type; /**< as in DLPack: 2 is CUDA memory, 13 managed memory, 3 pinned memory of the host */
  int32_t device_id;
  int32_t ndim;       /**< at most 8 */
  uint8_t dtype_code; /**< as in DLPack: 0 signed, 1 unsigned, 2 floating-point, 4 bfloat16, ... */
  uint8_t dtype_bits;
  uint16_t dtype_lanes;   /**< 1 */
  const int64_t* shape;   /**< [ndim] */
  const int64_t* strides; /**< [ndim], in elements; null: contiguous */
  uint64_t byte_offset;   /**< bytes from `data` to the first element */
} kiln_tensor;

enum {
  KILN_OPERAND_NONE = 0,    /**< not given: an optional input, or an output that kiln allocates */
  KILN_OPERAND_TENSOR = 1,  /**< `tensor` */
  KILN_OPERAND_INTEGER = 2, /**< `integer`; of a boolean 0 or 1, of a dtype a value of kiln::Dtype */
  KILN_OPERAND_FLOAT = 3,   /**< `number` */
  KILN_OPERAND_TEXT = 4,    /**< `text`: the name of a choice, a dtype ("bf16") or "true" */
  KILN_OPERAND_FLOATS = 5   /**< `numbers`: `count` of them */
};

/** An input or an output of a call. */
typedef struct kiln_operand {
  int32_t kind;  /**< KILN_OPERAND_* */
  int32_t count; /**< of `numbers`, or the bytes of `text`; -1: `text` ends with a zero byte */
  union {
    const kiln_tensor* tensor;
    int64_t integer;
    double number;
    const char* text;
    const double* numbers;
  };
} kiln_operand;

/**
 * Makes a tensor for a call.
 *
 * - index: the operand that it is for. An index of an input asks for a contiguous copy of `wanted`.
 * - wanted: dtype, device, shape and strides, which are never null. Its data is that of the input, else null.
 * - out: receives the tensor. It must have the wanted strides, and must live until the call has returned.
 *
 * Returns 0, or another number after a failure. Must not throw.
 */
typedef int32_t (*kiln_allocator)(size_t index, const kiln_tensor* wanted, kiln_tensor* out, void* user);

/** A call of an operator. */
typedef struct kiln_call {
  size_t struct_size;
  CUstream stream;
  /** Inputs in the order of the signature, then outputs. Those that are missing at the end are not given. */
  const kiln_operand* operands;
  size_t count;
  /** Allocates outputs, scratch memory, and copies of inputs whose layout the kernel does not read.
   *  Null: the caller gives all of them. */
  kiln_allocator allocate;
  void* user; /**< passed to allocate */
  /** Nonzero: a kernel that is not ready comes from memory or disk only, whatever the service's mode. */
  int32_t no_compile;
  /** Nonzero: the kernel is made ready after a seal too, as by kiln_service_prepare(). */
  int32_t past_seal;
} kiln_call;

/** An operator, bound to a device, a context and an arch. The service owns it. */
typedef struct kiln_operator kiln_operator;

/**
 * Opens an operator by its name, or by "TEMPLATE.NAME" where two templates have one of that name.
 *
 * `device` and `arch` are as in kiln_service_open(). With KILN_DEVICE_NONE a call checks its operands and obtains
 * the image, and launches nothing. Repeated calls return the same operator until the manifest changes.
 * unknown_template: no template on the template path has such an operator.
 */
KILN_API kiln_status kiln_service_open_operator(kiln_service* service, const char* name, int32_t device,
                                                const char* arch, kiln_operator** out);

/**
 * Describes operators: their inputs with kinds, shapes and defaults, their outputs, and their rules.
 *
 * The text is a JSON array, whose items are `operators` in docs/schema/templates.json. Expressions are texts of
 * the manifest.
 * `name` is as in kiln_service_open_operator(); null describes all operators on the template path, by template.
 * Needs neither a GPU nor a driver. unknown_template: as in kiln_service_open_operator().
 */
KILN_API kiln_status kiln_service_describe_operators(kiln_service* service, const char* name, kiln_text* out);

/**
 * Checks the operands, gets the kernel and launches it.
 *
 * The kernel is made ready when it is not, as in kiln_template_get(). A call with dtypes, compiled-in sizes and
 * options of an earlier call takes no lock, allocates nothing and makes no system call, beside `allocate`.
 * REQUIRES: the operator's context is current.
 * invalid_argument: an operand is not what the signature says. The message names operator and operand.
 * Nothing is allocated, compiled or launched then. Other errors are as in kiln_template_get() and
 * kiln_kernel_launch().
 */
KILN_API kiln_status kiln_operator_call(kiln_operator* op, const kiln_call* call);

/* ---- Blobs --------------------------------------------------------------------------------------------- *
 * A blob is opaque bytes under a key, in a space. Other JIT compilers of the process keep what they make in
 * kiln's stores this way: "triton", "inductor". Blobs have the layers, checksums, eviction, bundles and fleet tier
 * of kernels.
 *
 * A missing, damaged or torn blob is not there, and a put that finds no room is skipped: neither is an error.
 * All functions are thread-safe and safe between processes. None of them needs a GPU or a driver.
 *
 * A blob may be code, or a Python pickle. kiln gives only what this user, the owner of a layer or a trusted
 * signature vouches for (SECURITY.md). It never looks into a blob. */

/** The blobs of one space and one compatibility. The service owns it. */
typedef struct kiln_blobs kiln_blobs;
/** The right to make one blob. Other callers wait for it. */
typedef struct kiln_lease kiln_lease;

/** The options of a space of blobs. Zeros and nulls are defaults, except for the space's name. */
typedef struct kiln_blobs_options {
  size_t struct_size;
  /** 1 to 64 characters of a-z 0-9 _ - . ; `kiln caches capture` has "files", "dir" and names that begin with "dir.". */
  const char* space;
  /** The facts that the blobs depend on and their keys do not say, such as versions, arch and driver. It is a part of the
   *  key, and is compared when a blob is found. At most 64 KiB; null: nothing. */
  const char* compatibility;
  /** Bytes that the space may take in the store. Beyond that its least recently used blobs are deleted.
   *  0: half of the store. */
  uint64_t budget_bytes;
  /** 1: a blob that is not there is an error in mode sealed, and once the service is sealed. */
  int32_t refuse_when_sealed;
  /** 1: a put returns once the blob is queued, and a thread of the service stores it. This process finds a queued
   *  blob. It is lost when the process ends by a signal or by _exit() before it is stored. */
  int32_t behind;
} kiln_blobs_options;

/**
 * Opens a space. Touches no file.
 *
 * Repeated calls with the same options return the same handle. Handles of one space and compatibility share their
 * counts and their queue, and the first one decides on the budget.
 * invalid_argument: a text that no blob can have, or a space of `kiln caches capture`.
 */
KILN_API kiln_status kiln_service_open_blobs(kiln_service* service, const kiln_blobs_options* options,
                                             kiln_blobs** out);

/**
 * Reads a blob of any size. `out->data` is null when there is none. Release it with kiln_text_release().
 *
 * `key` has up to 64 KiB, of any values.
 * not_ready: the service is sealed or in mode sealed, the space refuses, and the blob is not there.
 */
KILN_API kiln_status kiln_blob_get(kiln_blobs* blobs, const void* key, size_t key_size, kiln_text* out);

/** How a put ended. */
enum {
  KILN_BLOB_STORED = 0,
  KILN_BLOB_PRESENT = 1, /**< the same bytes were there */
  KILN_BLOB_SKIPPED = 2, /**< no room, no store or a busy store; a warning says which */
  KILN_BLOB_QUEUED = 3   /**< another thread stores it (kiln_blobs_options.behind) */
};
/**
 * Stores a blob, and replaces one with other bytes. It is on disk when this returns, unless it was queued.
 *
 * `lease`: the lease to make it, or null. It is the caller's no more, whatever the call returns. Other callers
 *  wait until the blob is stored.
 * `state`: receives KILN_BLOB_*; may be null.
 * invalid_argument: more than 16 GiB.
 */
KILN_API kiln_status kiln_blob_put(kiln_blobs* blobs, const void* key, size_t key_size, const void* data,
                                   size_t size, kiln_lease* lease, int32_t* state);

/**
 * Reads a blob, or takes the lease to make it.
 *
 * Waits up to `wait_seconds` for another holder of the lease, of this host or of the fleet (negative: no limit). For a
 * holder on another node it waits at most as long as `remote_budget` says. On this host a killed holder's lease is free
 * at once.
 * With a blob, `*lease` is null. Without one, the caller makes the blob and puts it. `*lease` may be null then,
 * too: the wait was over, or this thread has the lease already, so the caller makes the blob for itself.
 * Errors are as in kiln_blob_get().
 */
KILN_API kiln_status kiln_blob_lease(kiln_blobs* blobs, const void* key, size_t key_size, double wait_seconds,
                                     kiln_text* out, kiln_lease** lease);
/**
 * kiln_blob_lease(), whose wait for another holder can be ended.
 *
 * This thread calls `interrupted(context)` about every 100 ms of the wait. A result other than 0 ends the wait as if
 * its time were over. Null: as kiln_blob_lease(). It must not call into the service.
 */
KILN_API kiln_status kiln_blob_lease_interruptible(kiln_blobs* blobs, const void* key, size_t key_size,
                                                   double wait_seconds, int32_t (*interrupted)(void* context),
                                                   void* context, kiln_text* out, kiln_lease** lease);
/**
 * Ends the waits of kiln_blob_lease() in this service, now and later: they return without a lease, so that each
 * caller makes its blob for itself. For a service that shall be destroyed while other threads may wait.
 */
KILN_API void kiln_service_end_waits(kiln_service* service);
/** Ends a lease without a blob, so that the next caller makes it. Null is allowed. */
KILN_API void kiln_lease_end(kiln_lease* lease);

/**
 * Waits until the blobs that were queued are stored or skipped, at most `wait_seconds` (negative: no limit).
 * `flushed` receives 0 when the wait was over first; may be null.
 */
KILN_API kiln_status kiln_blobs_flush(kiln_blobs* blobs, double wait_seconds, int32_t* flushed);

/**
 * Lists the blobs of the space, of every compatibility, in layers and store, as a JSON array.
 *
 * An item has "key" and "compatibility" (bytes that are no UTF-8 are shown as U+FFFD), "key_hex" (the key's bytes in
 * hex digits), "size" (bytes), "stored_bytes", "last_used_s" (seconds since 1970; 0: not known), "uses" and
 * "directory".
 */
KILN_API kiln_status kiln_blobs_list(kiln_blobs* blobs, kiln_text* out);
/** Deletes a blob of this compatibility from the writable store. `deleted` receives 1 when it was there; may be null. */
KILN_API kiln_status kiln_blob_delete(kiln_blobs* blobs, const void* key, size_t key_size, int32_t* deleted);

/**
 * Says what the fingerprint has of a blob that this process has read or stored, in place of its bytes.
 *
 * For bytes that differ from process to process although they are the same code, such as with the time of a compile.
 * The next read or put of the blob brings its bytes back. Nothing happens for a blob that this process has not used.
 */
KILN_API kiln_status kiln_blob_identify(kiln_blobs* blobs, const void* key, size_t key_size,
                                        const void* identity, size_t size);
/**
 * Counts the uses of blobs by this process, for every space that it opened, as a JSON array.
 *
 * An item has "space", "compatibility" and counts: "hits", "misses", "damaged", "sealed_misses", "remote_hits",
 * "waits", "wait_timeouts", "puts", "puts_present", "puts_skipped", "evictions", "bytes_read", "bytes_written".
 */
KILN_API kiln_status kiln_service_describe_blobs(kiln_service* service, kiln_text* out);

/* ---- Attention ----------------------------------------------------------------------------------------- *
 * An attention kernel whose manifest has [work_list] reads the work of each block from a buffer, the plan.
 * The grid has a fixed size. The plan spreads the tiles of q and their kv tokens evenly over its blocks.
 *
 *   1. kiln_kernel_attention_sizes() gives the sizes of plan and workspace. They depend on the limits alone.
 *   2. kiln_kernel_attention_plan() makes the plan of one batch on the host, before the launch.
 *   3. The caller copies the plan to the device, in the stream of the launch.
 *   4. The caller launches the kernel, or replays a graph that contains the launch.
 *
 * A captured graph works for other lengths once another plan was copied into the same buffer.
 * A workspace serves one launch at a time. It needs no initial value and keeps nothing between launches.
 * A plan may be launched any number of times, one launch after the other, by the kernel that it was made for.
 *
 * Shipped kernels compare the plan with their own specialisation and with the launch.
 * They compare tiles, group, causality, workers, kv heads, window_left and window_right.
 * On a mismatch they compute nothing, and kiln_service_device_faults() names the kernel and the reason.
 * The results of as many rows as the argument `tokens` says are then 0, and their lse is -infinity. Operators pass it.
 * With KILN_DEBUG=1 such a launch traps: CUDA_ERROR_LAUNCH_FAILED follows, and the context is lost.
 *
 * The lengths of a batch may be known on the device alone. A manifest allows this by `on = "device"`.
 * The buffer then gets a plan of the host once, such as the plan of no requests.
 * From then on the operator "attn_work_list" writes plans over it from lengths in device memory.
 * A graph may contain this launch. The words are those that kiln_kernel_attention_plan() writes.
 *
 * These functions make no driver call and allocate no device memory. They are thread-safe. */

/** The most that a batch may have. Plans and workspace are sized for these values. */
typedef struct kiln_attention_limits {
  size_t struct_size;
  int32_t max_requests;
  int32_t max_tokens; /**< tokens of q of all requests together; 0: max_requests, as in decode steps */
  int32_t kv_heads;   /**< heads of k and v in the launch */
  int32_t workers;    /**< blocks of the grid; 0: the manifest's number for this device */
} kiln_attention_limits;

/** Sizes that follow from the limits. Both buffers are aligned to 16 bytes on the device. */
typedef struct kiln_attention_sizes {
  size_t struct_size;
  uint64_t plan_bytes;      /**< bytes of the plan, on the host and on the device */
  uint64_t workspace_bytes; /**< bytes of the workspace, on the device */
  int32_t workers;          /**< an argument of the launch */
} kiln_attention_sizes;

/** Computes the sizes of plan and workspace.
 *  invalid_argument: the kernel has no [work_list], or a limit is not allowed. */
KILN_API kiln_status kiln_kernel_attention_sizes(const kiln_kernel* kernel,
                                                 const kiln_attention_limits* limits,
                                                 kiln_attention_sizes* out);

/** The lengths of a batch. The arrays are in host memory. kiln does not keep them. */
typedef struct kiln_attention_lengths {
  size_t struct_size;
  /** 0 to max_requests. */
  int32_t requests;
  /** kv tokens of a page. 0: k and v are ragged arrays. */
  int32_t page_size;
  /** A token sees at most this many tokens before its own place. -1: all of them.
   *  A kernel without a window takes -1 only, so a struct of zeros is refused.
   *  The launch takes the same value as an argument, and computes nothing when it differs. */
  int32_t window_left;
  /** [requests + 1]: the first token of each request in q, then the end. Null: one token for each request. */
  const int32_t* qo_indptr;
  /** [requests + 1]: the first row of k and v of each request, then the end.
   *  Paged: the first entry of the page table of each request, then the end. */
  const int32_t* kv_indptr;
  /** [requests]: kv tokens that count. Null: all rows, or the tokens that last_page_len gives. */
  const int32_t* kv_len;
  /** [requests]: tokens of the last page, 1 to page_size. It is ignored for a request without pages.
   *  Null when kv_len is given or k and v are not paged. */
  const int32_t* last_page_len;
  /** A token sees at most this many tokens after its own place. -1: all that causality leaves.
   *  A causal kernel takes -1 and 0, which mean the same. Another kernel without a window takes -1 only.
   *  The launch takes the same value as an argument, and computes nothing when it differs.
   *  It is -1 where struct_size says that the caller's struct ends before it. */
  int32_t window_right;
} kiln_attention_lengths;

/** The size and the counts of a plan. */
typedef struct kiln_attention_plan {
  size_t struct_size;
  uint64_t bytes;   /**< bytes to copy to the device, from the start of the buffer */
  uint32_t items;   /**< pieces of work: a tile, several adjacent tiles, or a part of a tile */
  uint32_t parts;   /**< items that are parts; each takes a slot of the workspace */
  uint32_t workers; /**< blocks up to the last one with work: short batches use few blocks */
} kiln_attention_plan;

/**
 * Writes the plan of a batch into host memory.
 *
 * - kernel: a kernel whose manifest has [work_list].
 * - limits: the limits that the sizes were computed from.
 * - lengths: the batch. A request may have no tokens, no kv, or more tokens than kv.
 * - buffer: host memory, aligned to 4 bytes. An asynchronous copy needs pinned memory.
 *   kiln only writes the buffer, so write-combined memory is fine.
 * - buffer_bytes: at least plan_bytes.
 * - out: may be null.
 *
 * invalid_argument: the kernel has no [work_list], a length is negative, shrinks or passes its limit,
 * or the buffer is too small or not aligned. The message names the array, the entry and what was allowed.
 * Nothing is written then.
 */
KILN_API kiln_status kiln_kernel_attention_plan(const kiln_kernel* kernel,
                                                const kiln_attention_limits* limits,
                                                const kiln_attention_lengths* lengths, void* buffer,
                                                size_t buffer_bytes, kiln_attention_plan* out);

/* ---- Log ----------------------------------------------------------------------------------------------- */

enum { KILN_LOG_TRACE = 0, KILN_LOG_DEBUG, KILN_LOG_INFO, KILN_LOG_WARNING, KILN_LOG_ERROR, KILN_LOG_OFF };

/**
 * Sends the log lines of `level` and above to `sink`. Null sends them to stderr, which is the default.
 *
 * The level is KILN_LOG_WARNING, or the value of the variable KILN_LOG, until this is called.
 * The message ends with a zero byte and is valid until the sink returns.
 * Several threads may call the sink at once. It may call kiln.
 * Once this has returned, the sink before it is not running and is not called again.
 * The one exception is a sink that calls this function itself: that call of it is still running.
 * The sink counts for this copy of kiln only. A forked child writes to stderr again.
 */
KILN_API kiln_status kiln_set_log(void (*sink)(int32_t level, const char* message, size_t size, void* user),
                                  void* user, int32_t level);

#ifdef __cplusplus
}
#endif
#endif
