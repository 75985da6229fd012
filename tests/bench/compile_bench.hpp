// Shared by the parts of compile_bench: the kernels, NVRTC called
// directly as in hand-written code, processor time.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "runtime/service/service.hpp"
#include "toolchain/nvrtc.hpp"

namespace kiln::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
double median(std::vector<double> values);

/// "slim" (rms_norm), "vendor" (cuda_bf16.h) or "cub". Throws Error(invalid_argument).
struct Kind {
  explicit Kind(const std::string& word);
  std::string name, template_name;
  int first_size = 0, step = 1;
  std::vector<Value> values(int index) const { return {Dtype::bf16, first_size + step * index}; }
};

Options bench_options(const std::string& cache_directory, int jobs);
source::Instantiation instantiate(runtime::Service& service, const Kind& kind, int index);

/// One compile to an image without kiln's path: the same text, name expression and options of the
/// manifest, with -I and --no-cache. Throws when NVRTC fails.
struct RawCompiled {
  std::string image, lowered_name;
};
RawCompiled compile_raw(const toolchain::Nvrtc& nvrtc, const source::Instantiation& unit,
                        const toolchain::Toolkit& toolkit);
const toolchain::Nvrtc& load_nvrtc(const toolchain::Toolkit& toolkit);

/// Processor seconds of this process and its children, both living and reaped.
double cpu_seconds();

/// Wall and processor seconds that one way of compiling took.
struct Measured {
  double seconds = 0, cpu = 0;
};
struct Share {
  int workers = 1, kernels = 1;  ///< kernels is a multiple of workers
};
Measured raw_threads(const Kind& kind, Share share);
/// `warm`: each process has compiled another kernel before the clock starts.
Measured raw_processes(const Kind& kind, Share share, bool warm);
Measured ours(const Kind& kind, Share share, bool warm);
/// The body of one child of raw_processes: compiles `count` kernels from
/// index `first`. Descriptor 0 is its pipe.
int raw_child(const Kind& kind, int first, int count, bool warm);

/// One compile: warm and cold, ours and raw, and the time of each part. Returns a JSON object.
std::string bench_single(const Kind& kind, int repeats);
/// One fresh process up to its first launch on a GPU; prints milliseconds. `who` is "kiln" or "raw".
int first_launch(const std::string& who);

}  // namespace kiln::bench
