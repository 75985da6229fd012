// A small decoder's element-wise kernels in a loop, as an engine runs them: norm with residual, rotation of
// heads, gated activation. It runs two hidden sizes, three batch sizes and any number of steps. `get` is
// called for every kernel of every layer of every step.
//
//   decoder_loop STEPS CACHE [--seal]      Runs sealed after the warm-up, and prints what the loop did.
//                                          With --seal, any open, exec, fork or socket in the loop kills it.
//
// Exit status: 0 done, 1 an error, 2 the sealed loop did something forbidden, 77 no GPU. KILN_RECORD,
// KILN_MODE and other settings come from the environment, as in production.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <string>
#include <vector>

#include "../engine/driver.hpp"
#include "kiln/kiln.hpp"

namespace {

constexpr int kHeadSize = 128, kMaxTokens = 64;
constexpr int kTokens[] = {1, 8, kMaxTokens};
constexpr const char* kRotate = R"(format = 1
[template]
name = "rotate"
source = "rotate.cu"
instantiate = "rotate<{D}>"
summary = "rotates the halves of each head, in place"
[param.D]
kind = "int"
range = [2, 1024]
doc = "head size"
[[arg]]
name = "x"
type = "ptr<f32>"
access = "readwrite"
shape = ["heads", "D"]
[[arg]]
name = "heads"
type = "i32"
value = 64
[[arg]]
name = "angle"
type = "f32"
value = 0.5
[launch]
grid = ["heads"]
block = ["D / 2"]
)";
constexpr const char* kRotateSource =
    R"(template <int D> __global__ void rotate(float* x, int heads, float angle) {
  float* head = x + static_cast<long long>(blockIdx.x) * D;
  const float a = head[threadIdx.x], b = head[threadIdx.x + D / 2];
  const float s = sinf(angle + threadIdx.x), c = cosf(angle + threadIdx.x);
  head[threadIdx.x] = a * c - b * s;
  head[threadIdx.x + D / 2] = a * s + b * c;
}
)";

/// One layer's buffers: activations and weights.
struct Layer {
  int hidden;
  float *x, *normed, *residual, *weight, *gated;
};

class Decoder {
 public:
  Decoder(kiln::Service& service, const Driver& driver)
      : norm_(service.open("rms_norm")),
        rotate_(service.open("rotate")),
        activate_(service.open("act_and_mul")),
        driver_(driver),
        stream_(driver.make_stream()) {
    for (const int hidden : {1024, 2048}) {
      const std::size_t size = static_cast<std::size_t>(hidden) * kMaxTokens;
      layers_.push_back({hidden, upload(size), upload(size), upload(size),
                         upload(static_cast<std::size_t>(hidden)), upload(size / 2)});
    }
  }

  void step(int tokens, int position) {
    for (const Layer& l : layers_) {
      const int half = l.hidden / 2;
      norm_.get(kiln::Dtype::f32, l.hidden, true)(stream_, l.normed, l.x, l.weight, tokens,
                                                  std::int64_t{l.hidden}, std::int64_t{l.hidden}, 1e-6f,
                                                  l.residual, std::int64_t{l.hidden});
      rotate_.get(kHeadSize)(stream_, l.normed, tokens * l.hidden / kHeadSize,
                             0.01f * static_cast<float>(position));
      activate_.get(kiln::Dtype::f32, half)(stream_, l.gated, l.normed, tokens, std::int64_t{l.hidden},
                                            std::int64_t{half});
      norm_.get({{"T", kiln::Dtype::f32}, {"H", half}})(stream_, l.x, l.gated, l.weight, tokens,
                                                        std::int64_t{half}, std::int64_t{l.hidden}, 1e-6f);
    }
  }

  /// A hash of the results of all steps.
  std::uint64_t state() const {
    driver_.synchronize(stream_);
    std::uint64_t hash = 14695981039346656037u;
    for (const Layer& l : layers_) {
      for (const float value : driver_.download(l.x, static_cast<std::size_t>(l.hidden) * kMaxTokens)) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        hash = (hash ^ bits) * 1099511628211u;
      }
    }
    return hash;
  }

 private:
  float* upload(std::size_t count) const {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<float>((i * 2654435761u >> 8) % 65536) / 32768.0f - 1.0f;
    return driver_.upload(values);
  }
  kiln::KernelTemplate norm_, rotate_, activate_;
  const Driver& driver_;
  CUstream stream_;
  std::vector<Layer> layers_;
};

/// After this call, opening a file or starting a process or a connection kills this process with SIGSYS.
bool forbid_opens() {
  constexpr std::uint32_t forbidden[] = {SYS_open,   SYS_openat, SYS_creat, SYS_execve,      SYS_execveat,
                                         SYS_socket, SYS_fork,   SYS_vfork, SYS_memfd_create};
  std::vector<sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offsetof(seccomp_data, nr)))};
  for (const std::uint32_t call : forbidden) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int run(int steps, const char* cache, bool seal) {
  std::string why;
  const Driver* driver = Driver::find(why);
  if (!driver) {
    std::printf("no GPU: %s\n", why.c_str());
    return 77;
  }
  driver->use_first_device();
  kiln::Options options;
  options.cache_dir = cache;
  kiln::Service service(options);
  service.add_template(kRotate, kRotateSource);
  Decoder decoder(service, *driver);
  for (const int tokens : kTokens) decoder.step(tokens, 0);
  if (seal) service.seal();
  const kiln::Stats before = service.stats();
  if (seal && !forbid_opens()) std::puts("no seccomp here: opens are not forbidden");
  for (int i = 0; i < steps; ++i) decoder.step(kTokens[static_cast<std::size_t>(i) % std::size(kTokens)], i);
  const std::uint64_t state = decoder.state();
  const kiln::Stats after = service.stats();
  std::printf("fingerprint %s\nstate %016llx\nwarm-up compiles %llu disk %llu loads %llu\n",
              service.fingerprint().c_str(), static_cast<unsigned long long>(state),
              static_cast<unsigned long long>(before.compiles),
              static_cast<unsigned long long>(before.disk_hits),
              static_cast<unsigned long long>(before.loads));
  const auto in_loop = [&](std::uint64_t kiln_stats::*count) {
    return static_cast<unsigned long long>(after.*count - before.*count);
  };
  std::printf("loop steps %d compiles %llu loads %llu disk %llu memory %llu sealed_misses %llu\n", steps,
              in_loop(&kiln_stats::compiles), in_loop(&kiln_stats::loads), in_loop(&kiln_stats::disk_hits),
              in_loop(&kiln_stats::memory_hits), in_loop(&kiln_stats::sealed_misses));
  const bool quiet = in_loop(&kiln_stats::compiles) + in_loop(&kiln_stats::loads) +
                         in_loop(&kiln_stats::disk_hits) + in_loop(&kiln_stats::sealed_misses) ==
                     0;
  std::fflush(stdout);
  if (seal) ::_exit(quiet ? 0 : 2);  // the driver may open files when it ends
  return quiet ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: decoder_loop STEPS CACHE [--seal]\n");
    return 1;
  }
  try {
    return run(std::atoi(argv[1]), argv[2], argc > 3 && std::string(argv[3]) == "--seal");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
