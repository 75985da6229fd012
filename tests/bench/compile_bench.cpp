// Cold compiles against raw NVRTC, in one run. Always with --no-cache.
//
//   compile_bench [--kinds slim,vendor,cub] [--workers 1,2,4] [--kernels N] [--rounds N] [--json FILE]
//   compile_bench first kiln | first raw     a fresh process up to its first launch, in ms; see cold.py
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "compile_bench.hpp"

using namespace kiln::bench;

namespace {

std::vector<std::string> pieces(const std::string& list) {
  std::vector<std::string> out;
  std::istringstream in(list);
  for (std::string one; std::getline(in, one, ',');) out.push_back(one);
  return out;
}

struct Way {
  const char* name;
  std::vector<double> rate{}, cpu{};  ///< kernels per second; processor seconds per kernel
  void add(const Measured& m, int kernels) {
    rate.push_back(kernels / m.seconds), cpu.push_back(m.cpu / kernels);
  }
};

/// Medians over rounds. In a round each way runs once, one after the other.
std::string throughput(const Kind& kind, int workers, int kernels, int rounds) {
  const Share share{workers, (kernels + workers - 1) / workers * workers};
  Way ways[] = {{"threads"}, {"processes"}, {"kiln"}, {"cold processes"}, {"cold kiln"}};
  std::vector<double> ratio, cold_ratio;
  for (int round = 0; round < rounds; ++round) {
    const auto raw = raw_processes(kind, share, true), mine = ours(kind, share, true);
    const auto cold_mine = ours(kind, share, false), cold_raw = raw_processes(kind, share, false);
    ways[0].add(raw_threads(kind, share), share.kernels);
    ways[1].add(raw, share.kernels), ways[2].add(mine, share.kernels);
    ways[3].add(cold_raw, share.kernels), ways[4].add(cold_mine, share.kernels);
    ratio.push_back(raw.seconds / mine.seconds), cold_ratio.push_back(cold_raw.seconds / cold_mine.seconds);
  }
  std::printf("%-6s %7d %7d", kind.name.c_str(), workers, share.kernels);
  std::ostringstream json;
  json << "{\"kind\": \"" << kind.name << "\", \"workers\": " << workers
       << ", \"kernels\": " << share.kernels;
  for (const Way& way : ways) {
    std::printf(" %8.2f %6.1f", median(way.rate), 1e3 * median(way.cpu));
    json << ", \"" << way.name << "\": {\"per_second\": " << median(way.rate)
         << ", \"cpu_ms\": " << 1e3 * median(way.cpu) << '}';
  }
  std::printf("   %5.3f %5.3f\n", median(ratio), median(cold_ratio));
  std::fflush(stdout);
  json << ", \"ratio\": " << median(ratio) << ", \"cold_ratio\": " << median(cold_ratio) << '}';
  return json.str();
}

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "raw-child" && argc == 6)
    return raw_child(Kind(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]), std::string(argv[5]) == "warm");
  if (mode == "first" && argc == 3) return first_launch(argv[2]);
  std::string kinds = "slim,vendor,cub", workers = "1,2,4,8,16", file;
  int kernels = 0, rounds = 3;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--kinds")
      kinds = value;
    else if (flag == "--workers")
      workers = value;
    else if (flag == "--kernels")
      kernels = std::atoi(value.c_str());
    else if (flag == "--rounds")
      rounds = std::atoi(value.c_str());
    else if (flag == "--json")
      file = value;
    else
      throw std::runtime_error("unknown flag " + flag);
  }
  if (argc % 2 == 0) throw std::runtime_error(std::string("no value for ") + argv[argc - 1]);
  std::string single, table;
  for (const std::string& kind : pieces(kinds))
    single += (single.empty() ? "" : ",\n  ") + bench_single(Kind(kind), kind == "cub" ? 5 : 15);
  std::puts(
      "\nkernels per second and CPU ms per kernel      raw threads   raw processes            kiln  cold "
      "processes  "
      "     cold kiln   kiln / processes: warm, cold\nkind   workers kernels");
  for (const std::string& kind : pieces(kinds)) {
    for (const std::string& number : pieces(workers)) {
      const int n = std::max(1, std::atoi(number.c_str()));
      const int count = kernels > 0 ? kernels : kind == "cub" ? std::max(4, 2 * n) : std::max(32, 8 * n);
      table += (table.empty() ? "" : ",\n  ") + throughput(Kind(kind), n, count, rounds);
    }
  }
  if (!file.empty())
    std::ofstream(file) << "{\"single\": [" << single << "],\n \"throughput\": [" << table << "]}\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "compile_bench: %s\n", error.what());
    return 1;
  }
}
