// Checks that NVRTC, its builtins and the included headers are of one toolkit version.
#include "tools/kiln/doctor/versions.hpp"
#include "tools/kiln/doctor/empty_kernel.hpp"

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/file.hpp"
#include "tools/kiln/doctor/finding.hpp"

namespace kiln::cli {
namespace {

using Status = Finding::Status;

/// 13000 -> "13.0"
std::string version_text(int number) {
  return std::to_string(number / 1000) + '.' + std::to_string(number % 1000 / 10);
}

/// The CUDA version in the first header found, and that header's path.
struct HeaderVersion {
  std::string version, path;
};
std::optional<HeaderVersion> header_version(const toolchain::Toolkit& toolkit) {
  constexpr std::pair<const char*, std::string_view> places[] = {
      {"/cuda_runtime_api.h", "#define CUDART_VERSION"}, {"/cuda.h", "#define CUDA_VERSION"}};
  for (const std::string& directory : toolkit.include_dirs) {
    for (const auto& [name, define] : places) {
      const auto content = base::read_file(directory + name, std::size_t{8} << 20);
      if (!content) continue;
      const std::size_t at = content->bytes.find(define);
      if (at == std::string::npos) continue;
      const int number = std::atoi(content->bytes.c_str() + at + define.size());
      if (number > 0) return HeaderVersion{version_text(number), directory + name};
    }
  }
  return std::nullopt;
}

/// ".../libnvrtc-builtins.so.13.0.88" -> "13.0"; empty when the name has no version.
std::string builtins_version(const std::string& library) {
  std::error_code ignored;
  const std::string name = std::filesystem::canonical(library, ignored).filename();
  const std::size_t at = name.find(".so.");
  if (at == std::string::npos) return {};
  const std::string version = name.substr(at + 4);
  return version.substr(0, version.find('.', version.find('.') + 1));
}

}  // namespace

void probe_versions(const toolchain::Toolkit& toolkit, const EmptyKernel& kernel, Findings& out) {
  const std::size_t before = out.size();
  const std::string& nvrtc = kernel.compiler_version;
  const std::string builtins = builtins_version(toolkit.compiler.builtins);
  if (!builtins.empty() && builtins != nvrtc)
    out.push_back({"versions", Status::warning,
                   toolkit.compiler.builtins + " is of CUDA " + builtins + ", but NVRTC is of CUDA " + nvrtc,
                   "install both from one release"});
  const auto headers = header_version(toolkit);
  if (headers && headers->version != nvrtc)
    out.push_back({"versions", Status::warning,
                   headers->path + " is of CUDA " + headers->version + ", but NVRTC is of CUDA " + nvrtc +
                       ": sources that include vendor headers may not compile",
                   "install both from one release, or set KILN_CUDA_HOME to the toolkit that has both"});
  if (out.size() == before)
    out.push_back({"versions", Status::ok,
                   "NVRTC" + std::string(headers ? ", builtins and headers are" : " and builtins are") +
                       " of CUDA " + nvrtc});
}

}  // namespace kiln::cli
