#include "toolchain/toolkit_layout.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "base/fd.hpp"
#include "base/file.hpp"

namespace kiln::toolchain {
namespace {

// Majors are probed from the newest that may exist. Minors are probed only where a libnvrtc was found.
constexpr int kNewestMajor = 16, kOldestMajor = 12, kNewestMinor = 9;

#if defined(__aarch64__)
constexpr const char* kTargets[] = {"targets/sbsa-linux", "targets/aarch64-linux"};
const char* const kTriplet = "aarch64-linux-gnu";
#else
constexpr const char* kTargets[] = {"targets/x86_64-linux"};
const char* const kTriplet = "x86_64-linux-gnu";
#endif

/// The path of an open file, as the kernel knows it; "" when no path leads to that file.
std::string path_of(const base::Fd& file) {
  std::string out(PATH_MAX, '\0');
  const ssize_t size =
      ::readlink(("/proc/self/fd/" + std::to_string(file.get())).c_str(), out.data(), out.size());
  out.resize(size > 0 && out[0] == '/' ? static_cast<std::size_t>(size) : 0);
  return out.ends_with(" (deleted)") ? "" : out;
}

/// Nothing when there is no readable file. One call makes the kernel resolve the path; realpath needs a call
/// for each component, before and after each link.
LibraryFile resolved(const std::string& path) {
  LibraryFile out{{}, base::Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY))};
  if (!out.file) return out;
  out.path = path_of(out.file);
  if (!out.path.empty()) return out;
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  if (!real) return {};
  // The opened file was renamed or removed. The result must have the path and the content of one library, so
  // the resolved path is opened.
  return {real.get(), base::Fd(::open(real.get(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY))};
}

/// Returns "13.0.88" for ".../libnvrtc.so.13.0.88".
std::string version_in(const std::string& path) {
  const auto so = path.rfind(".so.");
  return so == std::string::npos ? "" : path.substr(so + 4);
}

LibraryFile builtins_in(const std::string& directory, int major, const std::string& exact) {
  const std::string stem = directory + "/libnvrtc-builtins.so.";
  // A directory may hold the builtins of 13.0 and of 13.1. The full version in the library's own name
  // decides, else the newest are taken.
  for (std::string version = exact; version.find('.') != std::string::npos; version.erase(version.rfind('.')))
    if (auto found = resolved(stem + version); !found.path.empty()) return found;
  for (int minor = kNewestMinor; minor >= 0; --minor)
    if (auto found = resolved(stem + std::to_string(major) + '.' + std::to_string(minor));
        !found.path.empty())
      return found;
  return {};
}

/// Number after "python3.", by which versions are sorted. "python3" itself is the oldest.
int python_minor(const std::string& name) {
  const std::size_t at = name.find("python3.");
  return at == std::string::npos ? -1 : std::atoi(name.c_str() + at + 8);
}

}  // namespace

const char* const kMultiarch = kTriplet;

bool exists(const std::string& path) noexcept { return ::access(path.c_str(), R_OK) == 0; }

CompilerFiles compiler_in(const std::string& directory) {
  CompilerFiles incomplete;
  for (int major = kNewestMajor; major >= kOldestMajor; --major) {
    CompilerFiles found;
    found.nvrtc = resolved(directory + "/libnvrtc.so." + std::to_string(major));
    if (found.nvrtc.path.empty()) continue;
    found.builtins = builtins_in(directory, major, version_in(found.nvrtc.path));
    if (!found.builtins.path.empty()) return found;
    if (incomplete.nvrtc.path.empty()) incomplete = std::move(found);
  }
  return incomplete;
}

std::array<std::vector<std::string>, 2> library_dirs(const std::string& root) {
  std::vector<std::string> own{root + "/lib64"}, wheels;
  for (const char* target : kTargets) own.push_back(root + '/' + target + "/lib");
  own.push_back(root + "/lib");
  for (int major = kNewestMajor; major > 12; --major)
    wheels.push_back(root + "/cu" + std::to_string(major) + "/lib");
  wheels.push_back(root + "/cuda_nvrtc/lib");
  return {std::move(own), std::move(wheels)};
}

std::vector<std::string> header_dirs(const std::string& root) {
  const auto with_cccl = [](const std::string& include) {
    std::vector<std::string> out;
    if (!exists(include + "/cuda_fp16.h")) return out;
    out.push_back(base::normalized(include));
    if (exists(include + "/cccl")) out.push_back(base::normalized(include + "/cccl"));
    return out;
  };
  if (auto out = with_cccl(root + "/include"); !out.empty()) return out;
  for (const char* target : kTargets)
    if (auto out = with_cccl(root + '/' + target + "/include"); !out.empty()) return out;
  for (int major = kNewestMajor; major > 12; --major)
    if (auto out = with_cccl(root + "/cu" + std::to_string(major) + "/include"); !out.empty()) return out;
  // The wheels of CUDA 12 are siblings; `root` is their parent or one of the wheels.
  for (const std::string& parent : {root, root + "/.."}) {
    auto out = with_cccl(parent + "/cuda_runtime/include");
    if (out.empty()) continue;
    for (const char* wheel : {"/cuda_cccl/include", "/cuda_nvcc/include"})  // the latter has crt/, for mma.h
      if (exists(parent + wheel)) out.push_back(base::normalized(parent + wheel));
    return out;
  }
  return {};
}

std::string root_of_library_dir(const std::string& directory) {
  const std::string parent = base::directory_of(directory);
  // Debian's own packages have libraries in /usr/lib/<triplet> and headers in /usr/include.
  return directory.ends_with(std::string("/lib/") + kTriplet) ? base::directory_of(parent) : parent;
}

std::vector<std::string> wheel_roots(const std::string& prefix) {
  std::vector<std::string> pythons, out;  // such as "lib/python3.12"
  for (const std::string library : {"lib/", "lib64/"}) {
    const std::unique_ptr<DIR, int (*)(DIR*)> lib(::opendir((prefix + '/' + library).c_str()), &::closedir);
    while (const dirent* child = lib ? ::readdir(lib.get()) : nullptr)
      if (std::string_view(child->d_name).starts_with("python3")) pythons.push_back(library + child->d_name);
  }
  std::stable_sort(pythons.begin(), pythons.end(),
                   [](const auto& a, const auto& b) { return python_minor(a) > python_minor(b); });
  for (const std::string& python : pythons) {
    for (const char* packages : {"/site-packages/nvidia", "/dist-packages/nvidia"}) {
      std::string root = prefix + '/' + python + packages;
      if (exists(root)) out.push_back(std::move(root));
    }
  }
  return out;
}

std::vector<std::string> wheel_roots_beside(const std::string& object_directory) {
  const std::string package = base::directory_of(object_directory), packages = base::directory_of(package);
  std::vector<std::string> out;
  if (!exists(package + "/__init__.py")) return out;
  const auto add = [&](const std::string& root) {
    if (exists(root)) out.push_back(root);
  };
  add(packages + "/nvidia");
  constexpr std::string_view names[] = {"/lib/", "/lib64/"};
  for (const int i : {0, 1}) {
    const std::size_t at = packages.rfind(names[i]);
    if (at != std::string::npos)
      add(std::string(packages).replace(at, names[i].size(), names[1 - i]) + "/nvidia");
  }
  return out;
}

}  // namespace kiln::toolchain
