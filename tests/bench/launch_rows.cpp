#include "tests/bench/launch_rows.hpp"
#include "tests/support/places.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace kiln::bench {

World::World() {
  driver = find_driver();
  driver->check(driver->cuInit(0), "cuInit");
  driver->check(driver->cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  use_context();
  for (CUstream& stream : streams) driver->check(driver->cuStreamCreate(&stream, 1), "cuStreamCreate");
  for (void** buffer : {&out, &in, &weight}) {
    toolchain::CUdeviceptr address = 0;
    driver->check(driver->cuMemAlloc(&address, 1 << 20), "cuMemAlloc");
    driver->check(driver->cuMemsetD8(address, 0, 1 << 20), "cuMemsetD8");
    *buffer = reinterpret_cast<void*>(address);
  }
  Options options = Options::hermetic();
  options.cache_dir = cache.path();
  const std::string templates = std::string(kiln::places::kSourceDirectory) + "/templates";
  if (std::filesystem::exists(templates)) options.template_path = templates;
  if (const char* home = std::getenv("KILN_CUDA_HOME")) options.cuda_home = home;
  if (const char* worker = std::getenv("KILN_WORKER")) options.worker = worker;
  service = std::make_unique<Service>(options);
  service->add_template(
      "format = 1\n[template]\nname = \"empty\"\nsource = \"empty.cu\"\ninstantiate = \"empty<{N}>\"\n"
      "[param.N]\nkind = \"int\"\nrange = [1, 9]\ndefault = 1\n[launch]\ngrid = [\"1\"]\nblock = "
      "[\"32\"]\n",
      "template <int N> __global__ void empty() {}");
  empty = service->open("empty").get();
  // Four arguments of a call, of which the kernel gets one. Then it gets two tensor maps, too.
  const std::string mapped =
      "\"]\n[param.N]\nkind = \"int\"\nrange = [1, 9]\ndefault = 1\n[[arg]]\nname = \"x\"\ntype = "
      "\"ptr<bf16>\"\n"
      "[[arg]]\nname = \"y\"\ntype = \"ptr<bf16>\"\n[[arg]]\nname = \"rows\"\ntype = \"i32\"\n[[arg]]\nname "
      "= "
      "\"pitch\"\ntype = \"i64\"\n[launch]\ngrid = [1]\nblock = [32]\n";
  const auto map = [](const std::string& name, const std::string& of) {
    return "[[tensormap]]\nname = \"" + name + "\"\nof = \"" + of +
           "\"\ndims = [64, \"rows\"]\nstrides = [\"pitch\"]\nbox = [64, 64]\nswizzle = 128\n";
  };
  const auto head = [](const std::string& name, const std::string& arguments) {
    return "format = 1\n[template]\nname = \"" + name + "\"\nsource = \"" + name +
           ".cu\"\ninstantiate = \"f<{N}>\"\narguments = [\"" + arguments;
  };
  service->add_template(head("no_maps", "rows") + mapped, "template <int N> __global__ void f(int) {}");
  service->add_template(
      head("two_maps", "rows\", \"map_x\", \"map_y") + mapped + map("map_x", "x") + map("map_y", "y"),
      "struct alignas(64) M { int w[32]; };\ntemplate <int N> __global__ void f(int, const __grid_constant__ "
      "M, "
      "const __grid_constant__ M) {}");
  no_maps = service->open("no_maps").get();
  two_maps = service->open("two_maps").get();
  // A family of eight members, whose launches do what one of its members does.
  service->add_template(
      "format = 1\n[template]\nname = \"family\"\ninstantiate = \"g<{M}>\"\n[param.M]\nkind = "
      "\"int\"\nvalues = [8, "
      "16, 32, 64, 128, 256, 512, 1024]\n[family]\nby = \"m\"\nparameter = \"M\"\n"
      "[[arg]]\nname = \"x\"\ntype = \"ptr<bf16>\"\n[[arg]]\nname = \"m\"\ntype = \"i32\"\n"
      "[launch]\ngrid = [1]\nblock = [32]\n",
      "template <int M> __global__ void g(const void*, int) {}");
  family = service->open("family").get_family();
  member = family.member(20);
  rms_norm_template = std::make_unique<KernelTemplate>(service->open("rms_norm"));
  rms_norm_operator = std::make_unique<Operator>(service->operator_("rms_norm"));
  rms_norm = rms_norm_template->get(Dtype::bf16, 4096);
  act_and_mul = service->open("act_and_mul").get(Dtype::bf16, 4096);
  softmax = service->open("softmax").get(Dtype::f32, 32000);
  if (!fake) return;
  const auto quiet = reinterpret_cast<void (*)(int)>(control("kiln_fake_quiet"));
  quiet(1);
}

void* World::control(const char* name) {
  const char* path = std::getenv("KILN_LIBCUDA");
  void* library = path ? ::dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  return library ? ::dlsym(library, name) : nullptr;
}

const toolchain::Driver* World::find_driver() {
  if (!std::getenv("KILN_LIBCUDA") && !::dlopen("libcuda.so.1", RTLD_NOW))
    ::setenv("KILN_LIBCUDA", kiln::places::kFakeCuda, 1);
  const toolchain::Driver* found = toolchain::Driver::get();
  if (!found) {
    std::fprintf(stderr, "not measured: %s\n", toolchain::Driver::load_error().c_str());
    std::exit(77);
  }
  fake = control("kiln_fake_quiet") != nullptr;
  return found;
}

World& world() {
  static World it;
  return it;
}

namespace {

/// A launch of `kernel` as an engine would write it by hand: everything is prepared, one driver call is left.
struct Bare {
  toolchain::CUfunction function;
  toolchain::LaunchConfig config;
  toolchain::LaunchAttribute pdl;
  void *out = world().out, *in = world().in, *weight = world().weight, *null = nullptr;
  std::int32_t rows = 1;
  std::int64_t stride = 4096;
  float eps = 1e-6f;
  void* parameters[10] = {&out, &in, &weight, &rows, &stride, &stride, &eps, &null, &stride, &null};

  Bare(const Kernel& kernel, unsigned block, bool with_pdl, int thread) : function(kernel.function()) {
    config.block_x = block;
    config.stream = world().streams[thread];
    pdl.id = toolchain::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    pdl.value.value = 1;
    if (with_pdl) config.attributes = &pdl, config.attribute_count = 1;
  }
  void operator()() {
    if (world().driver->cuLaunchKernelEx(&config, function, parameters, nullptr) != 0) std::abort();
  }
};

}  // namespace

// Each body is a loop of its own, so that the call under test is inlined as in a user's program.
#define KILN_LOOP(statement) \
  for (int i = 0; i < calls; ++i) statement

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"bare_empty", "",
       [](int calls, int t) {
         Bare launch(world().empty, 32, false, t);
         KILN_LOOP(launch());
       }},
      {"bare", "",
       [](int calls, int t) {
         Bare launch(world().rms_norm, 256, true, t);
         KILN_LOOP(launch());
       }},
      {"raw", "bare",
       [](int calls, int t) {
         Bare by_hand(world().rms_norm, 256, true, t);
         LaunchConfig config;
         config.block[0] = 256, config.pdl = 1, config.stream = by_hand.config.stream;
         KILN_LOOP(world().rms_norm.launch(config, by_hand.parameters));
       }},
      {"empty", "bare_empty",
       [](int calls, int t) {
         const Kernel k = world().empty;
         const CUstream s = world().streams[t];
         KILN_LOOP(k(s));
       }},
      {"rms_norm", "bare",
       [](int calls, int t) {
         World& w = world();
         const Kernel k = w.rms_norm;
         const CUstream s = w.streams[t];
         KILN_LOOP(k(s, w.out, w.in, w.weight, 1, std::int64_t{4096}, std::int64_t{4096}, 1e-6f));
       }},
      {"rms_norm_eight_rows", "bare",
       [](int calls, int t) {  // each [[require]] is evaluated to its end
         World& w = world();
         const Kernel k = w.rms_norm;
         const CUstream s = w.streams[t];
         KILN_LOOP(k(s, w.out, w.in, w.weight, 8, std::int64_t{4096}, std::int64_t{4096}, 1e-6f));
       }},
      {"rms_norm_converted", "bare",
       [](int calls, int t) {  // size_t for i32, int for i64, double for f32
         World& w = world();
         const Kernel k = w.rms_norm;
         const CUstream s = w.streams[t];
         KILN_LOOP(k(s, w.out, w.in, w.weight, std::size_t{1}, 4096, 4096, 1e-6));
       }},
      {"act_and_mul", "bare",
       [](int calls, int t) {
         World& w = world();
         const Kernel k = w.act_and_mul;
         const CUstream s = w.streams[t];
         KILN_LOOP(k(s, w.out, w.in, 1, std::int64_t{8192}, std::int64_t{4096}));
       }},
      {"softmax", "bare",
       [](int calls, int t) {
         World& w = world();
         const Kernel k = w.softmax;
         const CUstream s = w.streams[t];
         KILN_LOOP(k(s, w.out, w.in, 1, std::int64_t{32000}, std::int64_t{32000}));
       }},
      {"no_maps", "bare_empty",
       [](int calls, int t) {
         World& w = world();
         const Kernel k = w.no_maps;
         const CUstream s = w.streams[t];
         KILN_LOOP(k(s, w.in, w.out, 64, std::int64_t{64}));
       }},
      {"two_maps", "no_maps",
       [](int calls, int t) {
         World& w = world();
         const Kernel k = w.two_maps;
         const CUstream s = w.streams[t];
         KILN_LOOP(k(s, w.in, w.out, 64, std::int64_t{64}));
       }},
      {"two_maps_missed", "no_maps",
       [](int calls, int t) {  // each launch encodes both: no address and size were seen before
         World& w = world();
         const Kernel k = w.two_maps;
         const CUstream s = w.streams[t];
         static std::atomic<int> next{0};
         KILN_LOOP({
           const int n = next.fetch_add(1, std::memory_order_relaxed);
           k(s, w.in, w.out, 1 + n % 8192, std::int64_t{64} + 8 * (n / 8192));
         });
       }},
      {"member", "bare_empty",
       [](int calls, int t) {
         World& w = world();
         const Kernel k = w.member;
         const CUstream s = w.streams[t];
         KILN_LOOP(k(s, w.in, 17 + i % 16));
       }},
      {"family", "member",
       [](int calls, int t) {  // always the same member
         World& w = world();
         const Family f = w.family;
         const CUstream s = w.streams[t];
         KILN_LOOP(f(s, w.in, 17 + i % 16));
       }},
      {"family_any", "member",
       [](int calls, int t) {  // sizes of all members in turn
         World& w = world();
         const Family f = w.family;
         const CUstream s = w.streams[t];
         KILN_LOOP(f(s, w.in, 1 + i * 37 % 1200));
       }},
      {"operator_rms_norm", "rms_norm_eight_rows",
       [](int calls, int t) {  // three tensors and a float: x, weight, out and eps
         World& w = world();
         const Operator op = *w.rms_norm_operator;
         const TensorView x(w.in, Dtype::bf16, {8, 4096}), weight(w.weight, Dtype::bf16, {4096}),
             out(w.out, Dtype::bf16, {8, 4096});
         const CUstream s = w.streams[t];
         KILN_LOOP(op(s, x, weight, 1e-6, nullptr, nullptr, nullptr, out));
       }},
      {"get_rms_norm", "bare",
       [](int calls, int t) {
         World& w = world();
         const KernelTemplate opened = *w.rms_norm_template;
         const CUstream s = w.streams[t];
         KILN_LOOP(opened.get(Dtype::bf16, 4096)(s, w.out, w.in, w.weight, 1, std::int64_t{4096},
                                                 std::int64_t{4096}, 1e-6f));
       }},
  };
  return all;
}

}  // namespace kiln::bench
