#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "compile_bench.hpp"
#include "kiln/error.hpp"
#include "tests/support/places.hpp"

namespace kiln::bench {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Kind::Kind(const std::string& word) : name(word) {
  if (word == "slim")
    template_name = "rms_norm", first_size = 1024, step = 8;
  else if (word == "vendor")
    template_name = "vendor_scale", first_size = 2;
  else if (word == "cub")
    template_name = "cub_block_sum", first_size = 1024;
  else
    throw Error(Errc::invalid_argument, "no kind '" + word + "'; there are slim, vendor and cub");
}

Options bench_options(const std::string& cache_directory, int jobs) {
  Options o;
  o.cache_dir = cache_directory;
  o.jobs = jobs;
  namespace fs = std::filesystem;  // a run from a copy of the tree finds them in its directory
  const auto place = [](const std::string& relative) {
    const std::string source = std::string(kiln::places::kSourceDirectory) + '/' + relative;
    return fs::exists(source) ? source : fs::absolute(relative).string();
  };
  o.template_path = place("tests/fixtures/templates") + ':' + place("templates");
  return o;
}

source::Instantiation instantiate(runtime::Service& service, const Kind& kind, int index) {
  const auto& opened = service.open(kind.template_name, KILN_DEVICE_NONE, "sm_90a");
  return source::instantiate(opened.shared_origin(),
                             source::resolve(opened.origin().manifest, kind.values(index), base::Arch{90}));
}

const toolchain::Nvrtc& load_nvrtc(const toolchain::Toolkit& toolkit) {
  if (!toolkit.has_compiler()) throw Error(Errc::no_compiler, "no NVRTC on this machine");
  return toolchain::Nvrtc::load(toolkit.compiler.library, toolkit.compiler.builtins);
}

RawCompiled compile_raw(const toolchain::Nvrtc& nvrtc, const source::Instantiation& unit,
                        const toolchain::Toolkit& toolkit) {
  toolchain::nvrtcProgram program = nullptr;
  nvrtc.check(nvrtc.CreateProgram(&program, unit.source.c_str(), "kernel.cu", 0, nullptr, nullptr), "create");
  nvrtc.check(nvrtc.AddNameExpression(program, unit.name_expression.c_str()), "name expression");
  std::vector<std::string> options{"--gpu-architecture=" + unit.resolved.arch.name(),
                                   "-I" + unit.origin->root};
  if (nvrtc.at_least(12, 9)) options.emplace_back("--no-cache");
  for (const std::string& directory : toolkit.include_dirs) options.push_back("-I" + directory);
  options.insert(options.end(), unit.options.begin(), unit.options.end());
  std::vector<const char*> raw;
  for (const std::string& option : options) raw.push_back(option.c_str());
  nvrtc.check(nvrtc.CompileProgram(program, static_cast<int>(raw.size()), raw.data()), "nvrtcCompileProgram");
  RawCompiled out;
  const char* lowered = nullptr;
  nvrtc.check(nvrtc.GetLoweredName(program, unit.name_expression.c_str(), &lowered), "lowered name");
  out.lowered_name = lowered;
  std::size_t size = 0;
  nvrtc.check(nvrtc.GetCUBINSize(program, &size), "size");
  out.image.resize(size);
  nvrtc.check(nvrtc.GetCUBIN(program, out.image.data()), "cubin");
  nvrtc.DestroyProgram(&program);
  return out;
}

double cpu_seconds() {
  double out = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    ::getrusage(who, &used);
    out += static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
  }
  // The rusage of this process does not have children that still live.
  std::error_code gone;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", gone)) {
    std::ifstream children(thread.path() / "children");
    for (int pid = 0; children >> pid;) {
      std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
      std::string stat;
      std::getline(file, stat);
      const auto name_end = stat.rfind(')');
      unsigned long long user = 0, system = 0;
      if (name_end != std::string::npos &&
          std::sscanf(stat.c_str() + name_end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu",
                      &user, &system) == 2)
        out += static_cast<double>(user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
    }
  }
  return out;
}

}  // namespace kiln::bench
