// The warm first kernel of an engine that uses only kiln's public headers, in fresh processes.
//
//   first_kernel [RUNS [PROGRAM...]]   runs each PROGRAM (default: this one) RUNS times (default: 200), in
//                                      turn. Prints the medians of each step, in microseconds and in page
//                                      faults.
//   first_kernel child [FILE]          one such process; writes the kernel's image to FILE after the clock.
//   first_kernel driver FILE           the driver's share of the time, in a process without kiln
//
// A child first makes its context, through a driver that it opens itself. Then it times the calls
// of an engine: the Service, open("rms_norm"), get(bf16, 4096). Builds of this file against
// different versions of kiln can be compared.
// Store and memo are filled before the clock starts. The store lies in a new directory that XDG_CACHE_HOME
// names. The caller sets KILN_TEMPLATE_PATH and KILN_WORKER, and KILN_LIBCUDA where there is no GPU.
// To build against a static library, from the root of the tree:
//
//   g++ -std=c++17 -O2 -Iinclude -I. tests/bench/first_kernel.cpp build/static/libkiln.a -ldl -pthread
#include <dlfcn.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/engine/driver.hpp"
#include "kiln/kiln.hpp"

namespace {

using Clock = std::chrono::steady_clock;

double us_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

/// Page faults of this process so far. On a virtual machine each costs as much as thousands of instructions.
double page_faults() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_minflt);
}

void make_context() {
  std::string why;
  const Driver* driver = Driver::find(why);
  if (!driver) throw std::runtime_error("no GPU (" + why + "); KILN_LIBCUDA may name another driver");
  driver->use_first_device();
}

int run_child(const char* image_file) {
  make_context();
  const double faults_before = page_faults();
  const auto begin = Clock::now();
  kiln::Service service;
  const auto made = Clock::now();
  const double faults_made = page_faults();
  const kiln::KernelTemplate rms_norm = service.open("rms_norm");
  const auto opened = Clock::now();
  const double faults_opened = page_faults();
  const kiln::Kernel kernel = rms_norm.get(kiln::Dtype::bf16, 4096);
  const auto end = Clock::now();
  const double faults_after = page_faults();
  std::printf("outcome=%d\n", static_cast<int>(kernel.info().outcome));
  std::printf("Service=%f\nopen=%f\nget=%f\ntotal=%f\n", us_between(begin, made), us_between(made, opened),
              us_between(opened, end), us_between(begin, end));
  std::printf("faults in Service=%f\nfaults in open=%f\nfaults in get=%f\nfaults=%f\n",
              faults_made - faults_before, faults_opened - faults_made, faults_after - faults_opened,
              faults_after - faults_before);
  if (image_file) {
    const kiln::Image image = rms_norm.compile(kiln::Dtype::bf16, 4096);
    std::ofstream(image_file, std::ios::binary)
        .write(image.cubin().data(), static_cast<std::streamsize>(image.cubin().size()));
  }
  return 0;
}

/// The calls that every program needs to load an image of a few kilobytes: finding the driver's functions and
/// loading the image. A separate call finds each function, as kiln does for its 51.
int run_driver(const char* image_file) {
  std::ifstream file(image_file, std::ios::binary);
  const std::string image{std::istreambuf_iterator<char>(file), {}};
  make_context();
  const auto begin = Clock::now();
  const char* named = std::getenv("KILN_LIBCUDA");
  void* library = ::dlopen(named && *named ? named : "libcuda.so.1", RTLD_NOW);
  using Get = int (*)(const char*, void**, int, unsigned long long, int*);
  const auto get = reinterpret_cast<Get>(::dlsym(library, "cuGetProcAddress_v2"));
  const auto find = [&](auto& function, const char* name, int version) {
    void* found = nullptr;
    int status = 0;
    if (get(name, &found, version, 1, &status) != 0) found = nullptr;
    std::memcpy(&function, &found, sizeof found);
  };
  int (*load)(void**, const void*, void*, void*, unsigned, void*, void*, unsigned) = nullptr;
  int (*kernels)(void**, unsigned, void*) = nullptr;
  int (*function_of)(void**, void*) = nullptr;
  int (*load_function)(void*) = nullptr;
  for (int i = 0; i < 47; ++i) find(load, "cuLibraryLoadData", 12000);
  find(load, "cuLibraryLoadData", 12000);
  find(kernels, "cuLibraryEnumerateKernels", 12040);
  find(function_of, "cuKernelGetFunction", 12000);
  find(load_function, "cuFuncLoad", 12040);
  const auto found = Clock::now();
  void *handle = nullptr, *kernel = nullptr, *function = nullptr;
  if (!load || load(&handle, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0) != 0)
    throw std::runtime_error("the driver loads no image");
  if (kernels && kernels(&kernel, 1, handle) == 0 && function_of(&function, kernel) == 0 && load_function)
    load_function(function);
  const auto end = Clock::now();
  std::printf("functions=%f\nload=%f\ntotal=%f\n", us_between(begin, found), us_between(found, end),
              us_between(begin, end));
  return 0;
}

using Steps = std::vector<std::pair<std::string, double>>;

/// Runs one fresh process and returns what it printed; empty when it failed.
Steps ask(const std::string& program, const std::string& arguments) {
  FILE* said = ::popen(("exec '" + program + "' " + arguments).c_str(), "r");
  Steps steps;
  char step[64];
  double value = 0;
  while (said && std::fscanf(said, "%63[^=]=%lf\n", step, &value) == 2) steps.emplace_back(step, value);
  return said && ::pclose(said) == 0 ? steps : Steps();
}

bool is_warm(const Steps& steps) {
  return !steps.empty() && static_cast<int>(steps[0].second) == KILN_OUTCOME_DISK;
}

/// Throws when the second or the third process does not find the kernel on disk.
void warm_up(const std::string& program, const std::string& image_file) {
  ask(program, "child");
  if (!is_warm(ask(program, "child")) || !is_warm(ask(program, "child '" + image_file + "'")))
    throw std::runtime_error("'" + program + "' does not find rms_norm on disk after it was asked for once");
}

class Times {
 public:
  void add(const Steps& steps) {
    if (steps.empty()) throw std::runtime_error("a process failed");
    for (const auto& [step, us] : steps) all_[step].push_back(us);
  }
  /// NaN for a step that an older build of this file does not report.
  double median(const std::string& step) {
    std::vector<double>& v = all_[step];
    if (v.empty()) return std::nan("");
    const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
    std::nth_element(v.begin(), middle, v.end());
    return *middle;
  }

 private:
  std::map<std::string, std::vector<double>> all_;
};

void compare(const std::string& self, const std::vector<std::string>& programs, int runs,
             const std::string& image_file) {
  for (const std::string& program : programs) warm_up(program, image_file);
  std::vector<Times> times(programs.size());
  Times driver;
  for (int run = 0; run < runs; ++run) {
    for (std::size_t at = 0; at < programs.size(); ++at) {
      const std::size_t i =
          (static_cast<std::size_t>(run) + at) % programs.size();  // each program comes first in turn
      const Steps steps = ask(programs[i], "child");
      if (!is_warm(steps)) throw std::runtime_error("a process did not find the kernel on disk");
      times[i].add(steps);
    }
    driver.add(ask(self, "driver '" + image_file + "'"));
  }
  std::printf("us, medians of %d fresh processes each, in turn (budget of total: 1000)\n", runs);
  for (const char* step : {"Service", "open", "get", "total", "faults in Service", "faults in open",
                           "faults in get", "faults"}) {
    std::printf("  %-17s", step);
    for (Times& of : times) std::printf(" %8.0f", of.median(step));
    std::printf("\n");
  }
  for (std::size_t i = 0; i < programs.size(); ++i)
    std::printf("  column %zu: %s\n", i + 1, programs[i].c_str());
  std::printf("the driver alone: %.0f to find 51 functions, %.0f to load the image\n",
              driver.median("functions"), driver.median("load"));
}

struct Scratch {
  Scratch() {
    if (!::mkdtemp(path.data())) throw std::runtime_error("cannot create '" + path + "'");
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string path = (std::filesystem::temp_directory_path() / "kiln-first-XXXXXX").string();
};

}  // namespace

int main(int argc, char** argv) try {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "child") return run_child(argc > 2 ? argv[2] : nullptr);
  if (what == "driver" && argc > 2) return run_driver(argv[2]);
  const Scratch scratch;
  ::setenv("XDG_CACHE_HOME", scratch.path.c_str(), 1);
  std::vector<std::string> programs(argv + std::min(argc, 2), argv + argc);
  if (programs.empty()) programs.emplace_back(argv[0]);
  compare(argv[0], programs, what.empty() ? 200 : std::max(1, std::atoi(what.c_str())),
          scratch.path + "/image");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "first_kernel: %s\n", error.what());
  return 1;
}
