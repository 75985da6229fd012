/* The C ABI from C11, as a binding sees it. The command line names a test, which runs on the fake driver.
 * Exit status: 0 is success, 77 is skipped. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kiln/kiln.h"

/* Driver functions that this program calls itself, as an engine in C would. */
int cuGetProcAddress_v2(const char* symbol, void** function, int version, unsigned long long flags,
                        int* status);
void kiln_fake_reset(void);
unsigned long kiln_fake_calls(const char* name);
size_t kiln_fake_launches(void);

static int failures = 0;

#define EXPECT(condition)                                                                     \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      ++failures;                                                                             \
      fprintf(stderr, "%s:%d: failed: %s (last error: %s)\n", __FILE__, __LINE__, #condition, \
              kiln_last_error()->message);                                                    \
    }                                                                                         \
  } while (0)

enum {
  INVALID_ARGUMENT = 1,
  UNKNOWN_TEMPLATE = 2,
  INVALID_VALUE = 4,
  COMPILE_FAILED = 9,
  NO_COMPILER = 12,
  NO_DRIVER = 13,
  NOT_READY = 15,
  IO = 17
};

static int is_invalid(kiln_status status, const char* what) {
  return status == INVALID_ARGUMENT && kiln_last_error()->status == status &&
         strstr(kiln_last_error()->message, what) != NULL;
}

static void make_context_current(void) {
  union {
    void* object;
    int (*init)(unsigned);
    int (*retain)(void**, int);
    int (*set)(void*);
  } f;
  void* context = NULL;
  int status = 0;
  EXPECT(cuGetProcAddress_v2("cuInit", &f.object, 2000, 0, &status) == 0 && f.init(0) == 0);
  EXPECT(cuGetProcAddress_v2("cuDevicePrimaryCtxRetain", &f.object, 7000, 0, &status) == 0 &&
         f.retain(&context, 0) == 0);
  EXPECT(cuGetProcAddress_v2("cuCtxSetCurrent", &f.object, 4000, 0, &status) == 0 && f.set(context) == 0);
}

static kiln_service* make_service(const char* cache) {
  kiln_options options;
  kiln_service* service = NULL;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.hermetic = 1;
  options.cache_dir = cache;
  options.cuda_home = getenv("KILN_CUDA_HOME");
  EXPECT(kiln_service_create(&options, &service) == KILN_OK);
  return service;
}

static kiln_value dtype(int64_t ordinal) {
  kiln_value v = {KILN_VALUE_DTYPE, 0, 0, NULL};
  v.integer = ordinal;
  return v;
}
static kiln_value integer(int64_t value) {
  kiln_value v = {KILN_VALUE_INTEGER, 0, 0, NULL};
  v.integer = value;
  return v;
}
static kiln_value text(const char* value) {
  kiln_value v = {KILN_VALUE_TEXT, 0, 0, NULL};
  v.text = value;
  v.text_size = (int32_t)strlen(value);
  return v;
}

static void null_handles_are_invalid_arguments(const char* cache) {
  kiln_service* service = make_service(cache);
  kiln_template* t = NULL;
  const kiln_kernel* kernel = NULL;
  kiln_value value = integer(1);
  kiln_stats stats;
  kiln_image image;
  kiln_kernel_info info;
  kiln_launch_config config;
  const kiln_arg_type types[1] = {{KILN_ARG_SIGNED, 4}};
  const void* data[1] = {&value};
  memset(&stats, 0, sizeof stats), memset(&image, 0, sizeof image), memset(&info, 0, sizeof info),
      memset(&config, 0, sizeof config);
  stats.struct_size = sizeof stats, image.struct_size = sizeof image, info.struct_size = sizeof info,
  config.struct_size = sizeof config;

  EXPECT(is_invalid(kiln_service_create(NULL, NULL), "out"));
  EXPECT(is_invalid(kiln_service_open(NULL, "rms_norm", KILN_DEVICE_NONE, NULL, &t), "kiln_service"));
  EXPECT(is_invalid(kiln_service_open(service, NULL, KILN_DEVICE_NONE, NULL, &t), "name"));
  EXPECT(is_invalid(kiln_service_open(service, "rms_norm", KILN_DEVICE_NONE, NULL, NULL), "out"));
  EXPECT(is_invalid(kiln_service_add_template(NULL, "", "", NULL), "kiln_service"));
  EXPECT(is_invalid(kiln_service_add_template(service, NULL, NULL, NULL), "null"));
  EXPECT(is_invalid(kiln_service_seal(NULL), "kiln_service"));
  EXPECT(is_invalid(kiln_service_stats(NULL, &stats), "kiln_service"));
  EXPECT(is_invalid(kiln_service_stats(service, NULL), "struct_size"));
  EXPECT(is_invalid(kiln_template_get(NULL, NULL, &value, 1, NULL, &kernel), "kiln_template"));
  EXPECT(is_invalid(kiln_template_compile(NULL, NULL, &value, 1, &image), "kiln_template"));
  EXPECT(kiln_template_try_get(NULL, &value, 1) == NULL);
  EXPECT(is_invalid(kiln_kernel_get_info(NULL, &info), "kiln_kernel"));
  EXPECT(kiln_kernel_function(NULL) == NULL);
  EXPECT(is_invalid(kiln_kernel_launch(NULL, NULL, types, data, 1), "kiln_kernel"));
  EXPECT(is_invalid(kiln_kernel_launch_raw(NULL, &config, NULL), "kiln_kernel"));
  kiln_image_release(NULL);
  kiln_image_release(&image);
  kiln_service_destroy(NULL);

  EXPECT(kiln_service_open(service, "rms_norm", KILN_DEVICE_NONE, NULL, &t) == KILN_OK);
  EXPECT(is_invalid(kiln_template_get(t, NULL, &value, 1, NULL, NULL), "out"));
  EXPECT(is_invalid(kiln_template_get(t, NULL, NULL, 1, NULL, &kernel), "values"));
  EXPECT(is_invalid(kiln_template_compile(t, NULL, &value, 1, NULL), "out"));
  EXPECT(kiln_template_try_get(t, NULL, 1) == NULL);
  {
    const char* names[1] = {NULL};
    EXPECT(is_invalid(kiln_template_get(t, names, &value, 1, NULL, &kernel), "name"));
  }
  kiln_service_destroy(service);
}

static void struct_sizes_are_respected(const char* cache) {
  kiln_options options;
  kiln_service* service = NULL;
  struct {
    kiln_stats stats;
    char guard[16];
  } out;
  memset(&options, 0, sizeof options);
  EXPECT(is_invalid(kiln_service_create(&options, &service), "struct_size"));
  options.struct_size = offsetof(kiln_options, template_path); /* an older caller: the rest is not read */
  options.hermetic = 1;
  options.cache_dir = cache;
  options.template_path = (const char*)(uintptr_t)0x10; /* would crash */
  EXPECT(kiln_service_create(&options, &service) == KILN_OK);

  memset(&out, 0x5a, sizeof out);
  out.stats.struct_size = offsetof(kiln_stats, compiles);
  EXPECT(kiln_service_stats(service, &out.stats) == KILN_OK);
  EXPECT(out.stats.struct_size == offsetof(kiln_stats, compiles));
  EXPECT(out.stats.foreign_toolchain == 0);
  EXPECT(out.stats.compiles == UINT64_C(0x5a5a5a5a5a5a5a5a)); /* past the end of the caller's struct */

  memset(&out, 0x5a, sizeof out);
  out.stats.struct_size = sizeof out; /* a caller that is newer than the library */
  EXPECT(kiln_service_stats(service, &out.stats) == KILN_OK);
  EXPECT(out.stats.compiles == 0);
  EXPECT(out.guard[0] == 0x5a && out.guard[15] == 0x5a);
  kiln_service_destroy(service);
}

static void errors_say_what_and_where(const char* cache) {
  kiln_service* service = make_service(cache);
  kiln_template* t = NULL;
  kiln_image image;
  kiln_value values[2];
  const char* manifest =
      "format = 1\n[template]\nname = \"broken\"\nsource = \"broken.cu\"\ninstantiate = \"f<{N}>\"\n"
      "[param.N]\nkind = \"int\"\nrange = [1, 9]\n[launch]\ngrid = [\"1\"]\nblock = [\"1\"]\n";
  memset(&image, 0, sizeof image);
  image.struct_size = sizeof image;
  EXPECT(kiln_service_open(service, "rms_nrom", KILN_DEVICE_NONE, NULL, &t) == UNKNOWN_TEMPLATE);
  EXPECT(strstr(kiln_last_error()->message, "rms_norm") != NULL);
  EXPECT(kiln_service_open(service, "rms_norm", KILN_DEVICE_NONE, "sm_banana", &t) != KILN_OK);
  EXPECT(strstr(kiln_last_error()->message, "sm_banana") != NULL);
  EXPECT(kiln_service_open(service, "rms_norm", KILN_DEVICE_NONE, NULL, &t) == KILN_OK);
  values[0] = dtype(99), values[1] = integer(4096);
  EXPECT(kiln_template_compile(t, NULL, values, 2, &image) == INVALID_VALUE);
  values[0] = dtype(-1);
  EXPECT(kiln_template_compile(t, NULL, values, 2, &image) == INVALID_VALUE);
  values[0].kind = 77;
  EXPECT(kiln_template_compile(t, NULL, values, 2, &image) == INVALID_VALUE);
  EXPECT(kiln_template_try_get(t, values, 2) == NULL);
  EXPECT(kiln_service_add_template(service, manifest, "template <int N> __global__ void f() { oops; }",
                                   NULL) == KILN_OK);
  EXPECT(kiln_service_add_template_path(service, NULL) == INVALID_ARGUMENT);
  EXPECT(kiln_service_add_template_path(service, "/nowhere/at/all") == IO);
  EXPECT(strstr(kiln_last_error()->message, "/nowhere/at/all") != NULL);
  EXPECT(kiln_service_add_template_path(service, cache) == KILN_OK);
  EXPECT(kiln_service_open(service, "broken", KILN_DEVICE_NONE, NULL, &t) == KILN_OK);
  values[0] = integer(3);
  EXPECT(kiln_template_compile(t, NULL, values, 1, &image) == COMPILE_FAILED);
  EXPECT(strcmp(kiln_last_error()->specialization, "broken N=3") == 0);
  EXPECT(strstr(kiln_last_error()->log, "oops") != NULL);
  EXPECT(strstr(kiln_last_error()->options, "-std=c++17") != NULL);
  EXPECT(kiln_service_seal(NULL) == INVALID_ARGUMENT);
  EXPECT(strcmp(kiln_last_error()->log, "") == 0); /* the earlier failure's log is gone */
  kiln_service_destroy(service);
}

static void gets_and_launches(const char* cache) {
  static const kiln_arg_type types[] = {{KILN_ARG_POINTER, 8}, {KILN_ARG_POINTER, 8}, {KILN_ARG_POINTER, 8},
                                        {KILN_ARG_SIGNED, 4},  {KILN_ARG_SIGNED, 8},  {KILN_ARG_SIGNED, 8},
                                        {KILN_ARG_FLOAT, 4}};
  static const kiln_arg_type odd[] = {{KILN_ARG_POINTER, 4}, {KILN_ARG_POINTER, 8}, {KILN_ARG_POINTER, 8},
                                      {KILN_ARG_SIGNED, 3},  {KILN_ARG_SIGNED, 8},  {KILN_ARG_SIGNED, 8},
                                      {KILN_ARG_FLOAT, 2}};
  static const kiln_arg_type unknown[] = {
      {KILN_ARG_POINTER, 8}, {KILN_ARG_POINTER, 8}, {KILN_ARG_POINTER, 8}, {99, 4},
      {KILN_ARG_SIGNED, 8},  {KILN_ARG_SIGNED, 8},  {KILN_ARG_FLOAT, 4}};
  kiln_service* service = make_service(cache);
  kiln_template* t = NULL;
  const kiln_kernel *kernel = NULL, *again = NULL;
  kiln_value values[2];
  const char* names[2] = {"H", "T"};
  kiln_kernel_info info;
  kiln_image image;
  kiln_get get;
  uint64_t out = 0x100000, x = 0x200000, w = 0x300000;
  int32_t rows = 3;
  int64_t stride = 4096;
  float eps = 1e-6f;
  const void* data[] = {&out, &x, &w, &rows, &stride, &stride, &eps};
  void* copy = NULL;

  EXPECT(kiln_service_open(service, "rms_norm", KILN_DEVICE_CURRENT, NULL, &t) == NO_DRIVER);
  make_context_current();
  EXPECT(kiln_service_open(service, "rms_norm", KILN_DEVICE_CURRENT, NULL, &t) == KILN_OK);
  values[0] = dtype(2), values[1] = integer(4096);
  EXPECT(kiln_template_try_get(t, values, 2) == NULL);
  memset(&get, 0, sizeof get);
  get.struct_size = sizeof get;
  get.deadline_s = 300;
  EXPECT(kiln_template_get(t, NULL, values, 2, &get, &kernel) == KILN_OK);
  EXPECT(kernel != NULL && kiln_kernel_function(kernel) != NULL);
  EXPECT(kiln_template_try_get(t, values, 2) == kernel);
  values[0] = text("4096"), values[1] = text("bf16 and more");
  values[1].text_size = 4; /* text need not be zero-terminated */
  EXPECT(kiln_template_get(t, names, values, 2, NULL, &again) == KILN_OK && again == kernel);

  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  EXPECT(kiln_kernel_get_info(kernel, &info) == KILN_OK);
  EXPECT(info.argument_count == 10 && strlen(info.key) == 64 && info.outcome == KILN_OUTCOME_COMPILED);
  memset(&image, 0, sizeof image);
  image.struct_size = sizeof image;
  EXPECT(kiln_template_compile(t, names, values, 2, &image) == KILN_OK);
  EXPECT(strcmp(image.key, info.key) == 0 && strcmp(image.arch, "sm_90a") == 0 &&
         image.outcome == KILN_OUTCOME_MEMORY);
  EXPECT(image.size > 64 && memcmp(image.bytes, "\177ELF", 4) == 0);
  EXPECT(strcmp(image.lowered_name, info.lowered_name) == 0);
  copy = image.owner;
  kiln_image_release(&image);
  kiln_image_release(&image); /* a second release does nothing */
  EXPECT(copy != NULL && image.owner == NULL);

  EXPECT(kiln_kernel_launch(kernel, NULL, types, data, 7) == KILN_OK);
  EXPECT(kiln_fake_launches() == 1);
  EXPECT(is_invalid(kiln_kernel_launch(kernel, NULL, NULL, data, 7), "types"));
  EXPECT(is_invalid(kiln_kernel_launch(kernel, NULL, types, NULL, 7), "data"));
  EXPECT(is_invalid(kiln_kernel_launch(kernel, NULL, types, data, 6), "eps"));
  EXPECT(is_invalid(kiln_kernel_launch(kernel, NULL, odd, data, 7), "'out'"));
  EXPECT(is_invalid(kiln_kernel_launch(kernel, NULL, unknown, data, 7), "'rows'"));
  EXPECT(is_invalid(kiln_kernel_launch_raw(kernel, NULL, NULL), "config"));
  EXPECT(kiln_fake_launches() == 1);
  kiln_service_destroy(service);
}

static void count_progress(const kiln_progress* progress, void* user) {
  if (progress->done == progress->total) ++*(int*)user;
}

/* Scopes, futures, plans and seals through the C ABI. */
static void scopes_futures_plans_and_seals(const char* cache) {
  static const char plan[] = "[[prewarm]]\ntemplate = \"rms_norm\"\nT = \"bf16\"\nH = [4096, 8192]\n";
  kiln_service* service = make_service(cache);
  kiln_scope* scope = NULL;
  kiln_template* t = NULL;
  kiln_future* future = NULL;
  kiln_preparation* preparation = NULL;
  const kiln_kernel* kernel = NULL;
  kiln_prepare prepare;
  kiln_progress progress;
  kiln_text missing;
  kiln_value values[2];
  char before[33], after[33];
  int32_t done = 0;
  int told = 0;
  uint64_t adopted = 1;

  make_context_current();
  values[0] = dtype(2), values[1] = integer(4096);
  EXPECT(kiln_service_fingerprint(service, before) == KILN_OK && strlen(before) == 32);
  EXPECT(kiln_scope_create(service, &scope) == KILN_OK);
  EXPECT(kiln_scope_open(scope, "rms_norm", KILN_DEVICE_CURRENT, NULL, &t) == KILN_OK);
  EXPECT(kiln_template_get_async(t, NULL, values, 2, NULL, &future) == KILN_OK);
  EXPECT(kiln_future_wait(future, -1, &kernel) == KILN_OK && kernel != NULL);
  EXPECT(kiln_future_done(future, &done) == KILN_OK && done == 1);
  kiln_future_destroy(future);
  EXPECT(kiln_template_try_get(t, values, 2) == kernel);
  EXPECT(kiln_service_fingerprint(service, after) == KILN_OK && strcmp(before, after) != 0);
  EXPECT(kiln_template_prefetch(t, NULL, values, 2) == KILN_OK);
  EXPECT(is_invalid(kiln_template_get_or_fallback(t, NULL, values, 2, NULL, &kernel), "fallback"));
  EXPECT(kiln_service_adopt(service, &adopted) == KILN_OK && adopted == 0);

  EXPECT(kiln_scope_release(scope) == KILN_OK);
  EXPECT(kiln_template_try_get(t, values, 2) == NULL);
  kiln_capture_begin();
  EXPECT(kiln_template_get(t, NULL, values, 2, NULL, &kernel) == NOT_READY);
  kiln_capture_end();

  EXPECT(kiln_process_seal() == KILN_OK); /* seals the service, as nobody has set its mode */
  EXPECT(kiln_template_get(t, NULL, values, 2, NULL, &kernel) == NOT_READY);
  memset(&missing, 0, sizeof missing);
  missing.struct_size = sizeof missing;
  EXPECT(kiln_service_missing(service, &missing) == KILN_OK && strstr(missing.data, "rms_norm") != NULL);
  kiln_text_release(&missing);

  memset(&prepare, 0, sizeof prepare);
  prepare.struct_size = sizeof prepare;
  prepare.plan = plan, prepare.device = KILN_DEVICE_CURRENT;
  prepare.on_progress = count_progress, prepare.user = &told;
  memset(&progress, 0, sizeof progress);
  progress.struct_size = sizeof progress;
  EXPECT(kiln_service_prepare(service, scope, &prepare, &preparation) == KILN_OK);
  EXPECT(kiln_preparation_wait(preparation, -1, &progress) == KILN_OK);
  EXPECT(progress.total == 2 && progress.done == 2 && progress.failed == 0);
  kiln_preparation_destroy(preparation);
  EXPECT(told == 1);
  EXPECT(kiln_template_get(t, NULL, values, 2, NULL, &kernel) == KILN_OK);
  EXPECT(kiln_set_log(NULL, NULL, KILN_LOG_OFF) == KILN_OK);
  EXPECT(is_invalid(kiln_set_log(NULL, NULL, 99), "KILN_LOG"));
  kiln_scope_destroy(scope);
  kiln_service_destroy(service);
}

static void a_service_whose_mode_nobody_set_is_sealed_by_its_seal(const char* cache) {
  kiln_service* service = make_service(cache);
  kiln_template* t = NULL;
  const kiln_kernel *kernel = NULL, *again = NULL;
  kiln_value values[2];

  make_context_current();
  values[0] = dtype(2), values[1] = integer(4096);
  EXPECT(kiln_service_open(service, "rms_norm", KILN_DEVICE_CURRENT, NULL, &t) == KILN_OK);
  EXPECT(kiln_template_get(t, NULL, values, 2, NULL, &kernel) == KILN_OK);
  EXPECT(kiln_service_seal(service) == KILN_OK);
  EXPECT(kiln_template_get(t, NULL, values, 2, NULL, &again) == KILN_OK && again == kernel);
  values[1] = integer(8192);
  EXPECT(kiln_template_get(t, NULL, values, 2, NULL, &again) == NOT_READY);
  EXPECT(strstr(kiln_last_error()->message, "[[prewarm]]") != NULL);
  kiln_service_destroy(service);
}

static void attention_plans(const char* cache) {
  static const char manifest[] =
      "format = 1\n[template]\nname = \"attend\"\nsource = \"attend.cu\"\ninstantiate = \"attend\"\n"
      "[[arg]]\nname = \"plan\"\ntype = \"ptr<i32>\"\naccess = \"readwrite\"\n"
      "[[arg]]\nname = \"workers\"\ntype = \"i32\"\nvalue = 5\n"
      "[work_list]\nkind = \"attention\"\nargument = \"plan\"\nworkers = \"workers\"\n"
      "tile_rows = 8\ntile_kv = 16\ngroup = 8\n[launch]\ngrid = [\"workers\"]\nblock = [32]\n";
  static const char source[] = "__global__ void attend(int* plan, int workers) { plan[0] = workers; }\n";
  const int32_t pages[] = {0, 3, 3}, last[] = {7, 0};
  kiln_service* service = make_service(cache);
  kiln_template* t = NULL;
  const kiln_kernel* kernel = NULL;
  struct {
    kiln_attention_sizes sizes;
    char guard[8];
  } out;
  kiln_attention_limits limits;
  kiln_attention_lengths lengths;
  kiln_attention_plan plan;
  int32_t words[256];
  memset(&limits, 0, sizeof limits), memset(&lengths, 0, sizeof lengths), memset(&plan, 0, sizeof plan);
  memset(&out, 0x5a, sizeof out), memset(words, 0, sizeof words);
  limits.struct_size = sizeof limits, limits.max_requests = 2, limits.kv_heads = 1;
  lengths.struct_size = sizeof lengths, lengths.requests = 2, lengths.window_left = lengths.window_right = -1;
  lengths.kv_indptr = pages, lengths.last_page_len = last, lengths.page_size = 16;
  plan.struct_size = sizeof plan;
  out.sizes.struct_size = sizeof out.sizes;

  make_context_current();
  EXPECT(kiln_service_add_template(service, manifest, source, NULL) == KILN_OK);
  EXPECT(kiln_service_open(service, "attend", KILN_DEVICE_CURRENT, NULL, &t) == KILN_OK);
  if (kiln_template_get(t, NULL, NULL, 0, NULL, &kernel) == NO_COMPILER) exit(77);
  EXPECT(kiln_kernel_attention_sizes(kernel, &limits, &out.sizes) == KILN_OK);
  EXPECT(out.sizes.workers == 5 && out.sizes.workspace_bytes == 0 && out.sizes.plan_bytes <= sizeof words);
  EXPECT(out.guard[0] == 0x5a);
  EXPECT(kiln_kernel_attention_plan(kernel, &limits, &lengths, words, sizeof words, &plan) == KILN_OK);
  EXPECT(words[3] == -1 && words[6] == -1); /* windows */
  EXPECT(words[4] == 2 && plan.items == (uint32_t)words[16 + 5] && plan.bytes <= out.sizes.plan_bytes);
  EXPECT(words[16 + 16 + 5] == 2 * 16 + 7); /* kv_len of the first item */
  EXPECT(kiln_kernel_attention_plan(kernel, &limits, &lengths, words, sizeof words, NULL) == KILN_OK);
  lengths.struct_size = offsetof(kiln_attention_lengths, window_right), lengths.window_right = 7;
  EXPECT(kiln_kernel_attention_plan(kernel, &limits, &lengths, words, sizeof words, NULL) == KILN_OK);
  EXPECT(words[6] == -1); /* an older caller has no window_right */
  lengths.struct_size = sizeof lengths, lengths.window_right = -1;

  EXPECT(is_invalid(kiln_kernel_attention_sizes(NULL, &limits, &out.sizes), "kiln_kernel"));
  EXPECT(is_invalid(kiln_kernel_attention_sizes(kernel, NULL, &out.sizes), "limits is null"));
  EXPECT(is_invalid(kiln_kernel_attention_sizes(kernel, &limits, NULL), "out is null"));
  EXPECT(is_invalid(kiln_kernel_attention_plan(NULL, &limits, &lengths, words, sizeof words, &plan),
                    "kiln_kernel"));
  EXPECT(is_invalid(kiln_kernel_attention_plan(kernel, &limits, NULL, words, sizeof words, &plan),
                    "lengths is null"));
  EXPECT(
      is_invalid(kiln_kernel_attention_plan(kernel, &limits, &lengths, NULL, 64, &plan), "buffer is null"));
  EXPECT(is_invalid(kiln_kernel_attention_plan(kernel, &limits, &lengths, (char*)words + 1, 64, &plan),
                    "aligned"));
  EXPECT(is_invalid(kiln_kernel_attention_plan(kernel, &limits, &lengths, words, 64, &plan),
                    "the buffer has 64 bytes"));
  limits.struct_size = 0;
  EXPECT(is_invalid(kiln_kernel_attention_sizes(kernel, &limits, &out.sizes), "struct_size"));
  kiln_service_destroy(service);
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(const char* cache);
  } tests[] = {{"null_handles_are_invalid_arguments", null_handles_are_invalid_arguments},
               {"struct_sizes_are_respected", struct_sizes_are_respected},
               {"errors_say_what_and_where", errors_say_what_and_where},
               {"gets_and_launches", gets_and_launches},
               {"attention_plans", attention_plans},
               {"scopes_futures_plans_and_seals", scopes_futures_plans_and_seals},
               {"a_service_whose_mode_nobody_set_is_sealed_by_its_seal",
                a_service_whose_mode_nobody_set_is_sealed_by_its_seal}};
  size_t i;
  if (argc != 3) return 2;
  EXPECT(strcmp(kiln_version(), "0.2.0") == 0);
  EXPECT(kiln_last_error() != NULL && kiln_last_error()->status == KILN_OK &&
         strcmp(kiln_last_error()->message, "") == 0);
  for (i = 0; i < sizeof tests / sizeof *tests; ++i)
    if (strcmp(tests[i].name, argv[1]) == 0) {
      tests[i].run(argv[2]);
      if (kiln_last_error()->status == NO_COMPILER) return 77;
      return failures ? 1 : 0;
    }
  return 2;
}
