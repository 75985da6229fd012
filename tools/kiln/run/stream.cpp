#include "tools/kiln/run/stream.hpp"

#include <algorithm>
#include <limits>

namespace kiln::cli {

double stream_us(RunCase& run, Timer& timer, const BenchResult& of, std::uint64_t cold) {
  const auto read = static_cast<std::int64_t>(of.read_bytes),
             write = static_cast<std::int64_t>(of.write_bytes);
  const auto bytes = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(read + write));
  const auto sets = static_cast<std::size_t>(std::clamp<std::uint64_t>((cold + bytes) / bytes, 2, 512));
  std::vector<Buffer> sources, targets;
  for (std::size_t i = 0; i < sets; ++i) {
    sources.emplace_back(run.gpu().driver(), static_cast<std::uint64_t>(std::max<std::int64_t>(read, 16)));
    ArgumentList()
        .pointer(sources.back().address())
        .integer(static_cast<std::int64_t>(sources.back().bytes() / 4))
        .integer(static_cast<std::int64_t>(i) + 1)
        .number(0)
        .number(1)
        .launch(run.own_kernel("kiln_fill", {Dtype::f32}), timer.stream());
    targets.emplace_back(run.gpu().driver(), static_cast<std::uint64_t>(std::max<std::int64_t>(write, 16)));
  }
  double best = std::numeric_limits<double>::infinity();
  for (const int unroll : {1, 2}) {
    const runtime::LoadedKernel& kernel = run.own_kernel("kiln_stream", {256, unroll});
    const auto launches = [&] {
      for (std::size_t i = 0; i < static_cast<std::size_t>(of.launches); ++i)
        ArgumentList()
            .pointer(sources[i % sets].address())
            .pointer(targets[i % sets].address())
            .integer(read)
            .integer(write)
            .launch(kernel, timer.stream());
    };
    best = std::min(best, timer.median_us(launches, 3, of.replays) / of.launches);
  }
  return best;
}

}  // namespace kiln::cli
