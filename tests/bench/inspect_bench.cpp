// Measures the inspecting commands on a store of 10,000 entries, as processes. Beside them it measures
// reading as many pages without using them.
// Usage: `inspect_bench KILN [ENTRIES] [ROUNDS]`.
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/fd.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "cache/store/store.hpp"
#include "compile/key/facts.hpp"
#include "compile/key/key.hpp"

extern char** environ;

namespace {

using namespace kiln;

constexpr std::size_t kImage = 40'000, kLog = 300;

/// A record like that of a compile of rms_norm: a key text of about 2 KB, a log of 300 bytes.
cache::Record entry_of(int number) {
  static constexpr const char* templates[] = {"rms_norm", "softmax", "act_and_mul", "gemm", "rope"};
  compile::Facts f;
  f.unit = templates[number % 5];
  f.arch = number % 2 ? "sm_90a" : "sm_80";
  const std::string width = std::to_string(128 * (1 + number / 10));
  f.parameters = {{"T", number % 3 ? "bf16" : "f16"},
                  {"H", width},
                  {"FUSED_ADD", "false"},
                  {"GEMMA", "false"},
                  {"OUT", "bf16"},
                  {"VEC", "8"},
                  {"THREADS", "256"},
                  {"ROWS", "1"}};
  f.name_expression = "kiln::" + f.unit + "<kiln::bf16, " + width + ", false, false, kiln::bf16, 8, 256, 1>";
  f.lowered_name = "_ZN4kiln8rms_normINS_4bf16ELi" + width + "ELb0ELb0ES1_Li8ELi256ELi1EEEvPT_PKS2_S5_fi";
  for (std::uint16_t i = 0; i < 6; ++i) f.arguments.push_back({i, 8});
  f.registers = 40, f.max_threads = 256, f.shared_bytes = 32, f.compiler_version = "13.0";
  f.frontend_ms = 20, f.nvvm_ms = 10, f.ptxas_ms = 9, f.compile_ms = 40 + number % 17;
  f.created_s = 1'700'000'000 + number;
  f.log.assign(kLog, 'x');
  const auto value = [](const std::string& text) { return ' ' + std::to_string(text.size()) + ':' + text; };
  std::string text = "kiln-key 1:1\ntemplate" + value(f.unit) + "\narch" + value(f.arch) + "\nsource" +
                     value(base::digest_of(f.unit).hex()) + '\n';
  for (int i = 0; i < 12; ++i)
    text += "include 0:" + value("\"kiln/header" + std::to_string(i) + ".cuh\"") +
            value(".k0/kiln/header" + std::to_string(i) + ".cuh") +
            value(base::digest_of(std::to_string(i)).hex()) + '\n';
  text += "name" + value(f.name_expression) + '\n';
  for (const Parameter& p : f.parameters) text += "parameter" + value(p.name) + value(p.value) + '\n';
  const std::size_t section = text.size();
  text += "toolchain 1:1\nfacts" + value(std::to_string(compile::kFactsVersion)) + "\nnvrtc" +
          value(std::string(40, 'a')) + '\n';
  Key key{base::digest_of(std::string_view(text).substr(0, section)),
          base::digest_of(std::string_view(text).substr(section))};
  cache::Record record{key, compile::encode(f), text, std::string(kImage, '\0')};
  std::uint32_t state = static_cast<std::uint32_t>(number) * 2654435761u + 1;
  for (char& byte : record.image) byte = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  return record;
}

double milliseconds(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  const auto start = base::Clock::now();
  pid_t pid = 0;
  int status = 0;
  if (::posix_spawn(&pid, program.c_str(), &actions, nullptr, argv.data(), environ) != 0 ||
      ::waitpid(pid, &status, 0) != pid) {
    std::perror(program.c_str());
    std::exit(1);
  }
  ::posix_spawn_file_actions_destroy(&actions);
  if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 3)) {
    std::fprintf(stderr, "%s ended with %d\n", arguments.front().c_str(), status);
    std::exit(1);
  }
  return std::chrono::duration<double, std::milli>(base::Clock::now() - start).count();
}

/// Reads one page for each entry with pread, at even distances in the file.
double raw_reads(const std::string& file, int entries) {
  const base::Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat st {};
  ::fstat(fd.get(), &st);
  std::vector<char> page(4096);
  const auto start = base::Clock::now();
  const off_t step = st.st_size / entries / 4096 * 4096;
  for (int i = 0; i < entries; ++i)
    if (::pread(fd.get(), page.data(), page.size(), i * step) < 0) std::exit(1);
  return std::chrono::duration<double, std::milli>(base::Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: inspect_bench KILN [ENTRIES] [ROUNDS]\n");
    return 2;
  }
  const int entries = argc > 2 ? std::atoi(argv[2]) : 10'000, rounds = argc > 3 ? std::atoi(argv[3]) : 15;
  const base::TempDir scratch("kiln-inspect-bench");
  const char* kept = std::getenv("INSPECT_BENCH_STORE");  // a store that is filled once and kept
  const std::string directory = kept ? kept : scratch.path() + "/cache";
  std::string key;
  {
    cache::StoreOptions options;
    options.directory = directory;
    const auto store = cache::Store::open(options);
    for (int i = 0; i < entries; ++i) {
      const cache::Record record = entry_of(i);
      if (i == entries / 2) key = record.key.hex();
      if (kept && store->peek_text(record.key, base::Deadline::never())) continue;
      if (const auto put = store->put(record); put.put != cache::Put::stored) {
        std::fprintf(stderr, "put: %s\n", put.detail.c_str());
        return 1;
      }
    }
  }
  const std::vector<std::pair<const char*, std::vector<std::string>>> commands = {
      {"version (a start)", {"--version"}},
      {"ls", {"ls"}},
      {"ls --json", {"ls", "--json"}},
      {"ls -n 20 --sort size", {"ls", "-n", "20", "--sort", "size"}},
      {"stats", {"stats"}},
      {"show", {"show", key.substr(0, 12)}},
      {"why (a miss)", {"why", "rms_norm", "T=bf16", "H=4096", "--arch", "sm_90a"}},
      {"why --all 32", {"why", "rms_norm", "T=bf16", "H=4096", "--arch", "sm_90a", "--all", "32"}},
  };
  std::map<std::string, std::vector<double>> times;
  for (int round = -1; round < rounds; ++round) {  // the first round is for warming up
    for (const auto& [name, arguments] : commands) {
      auto all = arguments;
      all.insert(all.end(), {"--cache-dir", directory});
      if (arguments.front() == "--version") all = arguments;
      const double ms = milliseconds(argv[1], all);
      if (round >= 0) times[name].push_back(ms);
    }
    const double raw = raw_reads(directory + "/v1/data.mdb", entries);
    if (round >= 0) times["raw preads"].push_back(raw);
  }
  const double raw = median(times["raw preads"]);
  std::printf("%d entries, %d rounds, interleaved\n%-24s %10s %10s %8s\n", entries, rounds, "", "median ms",
              "min ms", "x raw");
  for (const auto& [name, values] : times)
    std::printf("%-24s %10.1f %10.1f %8.1f\n", name.c_str(), median(values),
                *std::min_element(values.begin(), values.end()), median(values) / raw);
}
