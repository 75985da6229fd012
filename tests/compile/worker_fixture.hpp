// Requests for compile workers, and checks of the workers' processes.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "compile/fixture.hpp"
#include "compile/worker/protocol.hpp"

namespace kiln::testing {

inline compile::WorkerRequest request(
    const toolchain::Toolkit& toolkit,
    const std::string& source = "template <int N> __global__ void k(int* o) { *o = N; }") {
  compile::WorkerRequest r;
  r.compiler = toolkit.compiler;
  r.program_name = "/dev/null/k.cu", r.source = source, r.arch = "sm_90a";
  r.options = {"--no-cache", "--modify-stack-limit=false", "--time=-"};
  r.name_expressions = {"k<4>"};
  return r;
}

/// Compiles for minutes, as its template instantiations double.
inline constexpr const char* kEndless =
    "template <int N, int M> struct F { static const int v = F<N - 1, 2 * M>::v + F<N - 1, 2 * M + 1>::v; "
    "};\n"
    "template <int M> struct F<0, M> { static const int v = M; };\n"
    "template <int N> __global__ void k(int* o) { *o = F<26, 1>::v; }";

inline bool gone(pid_t pid, int tenths) {
  for (int i = 0; i < tenths; ++i) {
    if (::kill(pid, 0) != 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

/// The children of this process, zombies included. A set, as a thread that ends meanwhile passes its children
/// to another thread, where they would be seen again.
inline std::vector<pid_t> children() {
  std::set<pid_t> out;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream in(task.path() / "children");
    for (pid_t pid; in >> pid;) out.insert(pid);
  }
  return {out.begin(), out.end()};
}

inline std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

/// Waits until the condition is true, for at most `tenths` of a second. Returns the condition.
template <class Condition>
bool soon(int tenths, Condition&& condition) {
  for (int i = 0; i < tenths; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return condition();
}

}  // namespace kiln::testing
