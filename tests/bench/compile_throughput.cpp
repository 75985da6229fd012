// Many kernels by N workers: NVRTC on threads, NVRTC in processes, and kiln's path.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <stdexcept>
#include <thread>

#include "base/fd.hpp"
#include "base/file.hpp"
#include "compile_bench.hpp"

namespace kiln::bench {
namespace {

constexpr int kWarmUps = 1'000;  // kernels from this index on only warm up

/// Runs body(worker, true) on every thread to warm up, then body(worker,
/// false) on all threads against the clock.
template <class Body, class End>
Measured timed(int workers, bool warm, Body&& body, End&& end) {
  Measured out;
  double cpu = 0;
  Clock::time_point start;
  std::barrier ready(workers + 1), go(workers + 1);
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      if (warm) body(w, true);
      ready.arrive_and_wait();
      go.arrive_and_wait();
      body(w, false);
    });
  }
  ready.arrive_and_wait();
  cpu = cpu_seconds(), start = Clock::now();
  go.arrive_and_wait();
  for (std::thread& t : threads) t.join();
  end();
  out.seconds = seconds_since(start), out.cpu = cpu_seconds() - cpu;
  return out;
}

struct Child {
  pid_t pid = -1;
  base::Fd socket;
};

Child start_child(const Kind& kind, int first, int count, bool warm) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) throw std::runtime_error("socketpair");
  Child out;
  out.socket = base::Fd(pair[0]);
  const base::Fd theirs(pair[1]);
  const std::string from = std::to_string(first), number = std::to_string(count);
  out.pid = ::fork();
  if (out.pid == 0) {
    ::dup2(theirs.get(), 0);
    ::execl("/proc/self/exe", "compile_bench", "raw-child", kind.name.c_str(), from.c_str(), number.c_str(),
            warm ? "warm" : "cold", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  return out;
}

void expect_byte(int fd) {
  char byte;
  if (::read(fd, &byte, 1) != 1) throw std::runtime_error("a raw process failed");
}

}  // namespace

Measured raw_threads(const Kind& kind, Share share) {
  const base::TempDir cache("kiln-bench-");
  runtime::Service service(bench_options(cache.path(), 1));
  const auto& toolkit = service.core().state().files.toolkit();
  const auto& nvrtc = load_nvrtc(toolkit);
  const int each = share.kernels / share.workers;
  return timed(
      share.workers, true,
      [&](int worker, bool warm_up) {
        for (int i = 0; i < (warm_up ? 1 : each); ++i)
          compile_raw(nvrtc, instantiate(service, kind, warm_up ? kWarmUps + worker : worker * each + i),
                      toolkit);
      },
      [] {});
}

int raw_child(const Kind& kind, int first, int count, bool warm) {
  const base::TempDir cache("kiln-bench-");
  runtime::Service service(bench_options(cache.path(), 1));
  const auto& toolkit = service.core().state().files.toolkit();
  const auto& nvrtc = load_nvrtc(toolkit);
  if (warm) compile_raw(nvrtc, instantiate(service, kind, kWarmUps + first), toolkit);
  char byte = 'r';
  if (warm && (::write(0, &byte, 1) != 1 || ::read(0, &byte, 1) != 1)) return 1;
  for (int i = 0; i < count; ++i) compile_raw(nvrtc, instantiate(service, kind, first + i), toolkit);
  byte = 'd';
  if (::write(0, &byte, 1) != 1) return 1;
  return ::read(0, &byte, 1) == 0 ? 0 : 1;  // the parent closes its end when all children are measured
}

Measured raw_processes(const Kind& kind, Share share, bool warm) {
  const int each = share.kernels / share.workers;
  double cpu = cpu_seconds();
  auto start = Clock::now();
  std::vector<Child> children;
  for (int w = 0; w < share.workers; ++w) children.push_back(start_child(kind, w * each, each, warm));
  if (warm) {
    for (const Child& child : children) expect_byte(child.socket.get());
    cpu = cpu_seconds(), start = Clock::now();
    for (const Child& child : children) {
      if (::write(child.socket.get(), "g", 1) != 1) throw std::runtime_error("a raw process is gone");
    }
  }
  for (const Child& child : children) expect_byte(child.socket.get());
  const Measured out{seconds_since(start), cpu_seconds() - cpu};
  for (Child& child : children) {
    child.socket.reset();
    ::waitpid(child.pid, nullptr, 0);
  }
  return out;
}

Measured ours(const Kind& kind, Share share, bool warm) {
  const base::TempDir cache("kiln-bench-");
  const double cpu = cpu_seconds();
  const auto start = Clock::now();
  runtime::Service service(bench_options(cache.path() + "/cache", share.workers));
  const int each = share.kernels / share.workers;
  Measured out = timed(
      share.workers, warm,
      [&](int worker, bool warm_up) {
        // Two compiles: the first may get a worker that another thread has just warmed.
        for (int i = 0; i < (warm_up ? 2 : each); ++i) {
          const int index = warm_up ? kWarmUps + 2 * worker + i : worker * each + i;
          if (service.core().path().obtain(instantiate(service, kind, index), {}).outcome !=
              Outcome::compiled)
            std::fprintf(stderr, "kernel %d of %s was not cold\n", index, kind.name.c_str());
        }
      },
      [&] { service.core().path().flush(); });
  return warm ? out : Measured{seconds_since(start), cpu_seconds() - cpu};
}

}  // namespace kiln::bench
