#include "toolchain/nvrtc.hpp"

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "base/process.hpp"
#include "kiln/error.hpp"

namespace kiln::toolchain {
namespace {

constexpr int kOldestNvrtc = 12;

[[noreturn]] void unusable(const std::string& path, const std::string& why) {
  throw Error(Errc::no_compiler, "cannot use the compiler '" + path + "': " + why);
}

SharedLibrary open_or_throw(const std::string& path) {
  std::string why;
  const SharedLibrary library = SharedLibrary::open(path, why);
  if (!library) unusable(path, why);
  return library;
}

template <class Function>
void bind_if_there(Function*& target, const SharedLibrary& library, const char* name) {
  void* found = library.symbol(name);
  std::memcpy(&target, &found, sizeof target);
}

template <class Function>
void bind(Function*& target, const SharedLibrary& library, const std::string& path, const char* name) {
  void* found = library.symbol(name);
  if (!found) unusable(path, std::string("it has no ") + name + " (NVRTC 12.0 or newer is needed)");
  std::memcpy(&target, &found, sizeof target);
}

std::unique_ptr<Nvrtc> open_nvrtc(const std::string& nvrtc_path, const std::string& builtins_path) {
  // libnvrtc opens "libnvrtc-builtins.so.<version>" by soname when it first compiles. The loader then returns
  // an open library of that soname, RTLD_LOCAL or not, wherever its file lies.
  open_or_throw(builtins_path);
  const SharedLibrary library = open_or_throw(nvrtc_path);
  auto out = std::make_unique<Nvrtc>();
  Nvrtc& n = *out;
  bind(n.GetErrorString, library, nvrtc_path, "nvrtcGetErrorString");
  bind(n.Version, library, nvrtc_path, "nvrtcVersion");
  bind(n.GetNumSupportedArchs, library, nvrtc_path, "nvrtcGetNumSupportedArchs");
  bind(n.GetSupportedArchs, library, nvrtc_path, "nvrtcGetSupportedArchs");
  bind(n.CreateProgram, library, nvrtc_path, "nvrtcCreateProgram");
  bind(n.DestroyProgram, library, nvrtc_path, "nvrtcDestroyProgram");
  bind(n.CompileProgram, library, nvrtc_path, "nvrtcCompileProgram");
  bind(n.GetCUBINSize, library, nvrtc_path, "nvrtcGetCUBINSize");
  bind(n.GetCUBIN, library, nvrtc_path, "nvrtcGetCUBIN");
  bind(n.GetPTXSize, library, nvrtc_path, "nvrtcGetPTXSize");
  bind(n.GetPTX, library, nvrtc_path, "nvrtcGetPTX");
  bind(n.GetProgramLogSize, library, nvrtc_path, "nvrtcGetProgramLogSize");
  bind(n.GetProgramLog, library, nvrtc_path, "nvrtcGetProgramLog");
  bind(n.AddNameExpression, library, nvrtc_path, "nvrtcAddNameExpression");
  bind(n.GetLoweredName, library, nvrtc_path, "nvrtcGetLoweredName");
  bind_if_there(n.SetPCHHeapSize, library, "nvrtcSetPCHHeapSize");
  bind_if_there(n.GetPCHCreateStatus, library, "nvrtcGetPCHCreateStatus");

  int count = 0;
  n.check(n.Version(&n.major, &n.minor), "nvrtcVersion");
  if (n.major < kOldestNvrtc) {
    unusable(nvrtc_path, "it is NVRTC " + std::to_string(n.major) + '.' + std::to_string(n.minor) +
                             "; 12.0 or newer is needed");
  }
  n.check(n.GetNumSupportedArchs(&count), "nvrtcGetNumSupportedArchs");
  n.archs.resize(static_cast<std::size_t>(count));
  n.check(n.GetSupportedArchs(n.archs.data()), "nvrtcGetSupportedArchs");
  return out;
}

/// A child that is forked while another thread loads starts without these objects. The loader
/// gives it the same library.
struct Libraries {
  std::mutex mutex;  // guards by_path
  std::map<std::string, std::unique_ptr<Nvrtc>> by_path;
};
// Never destroyed: a compile may still run on another thread while the process exits.
constinit base::ProcessWide<Libraries> g_libraries;

}  // namespace

const Nvrtc& Nvrtc::load(const std::string& nvrtc_path, const std::string& builtins_path) {
  Libraries& loaded = g_libraries.get();
  const std::lock_guard lock(loaded.mutex);
  auto& target = loaded.by_path[nvrtc_path];
  if (!target) target = open_nvrtc(nvrtc_path, builtins_path);
  return *target;
}

void Nvrtc::check(nvrtcResult result, const char* call) const {
  if (result != 0) throw Error(Errc::internal, std::string(call) + ": " + GetErrorString(result));
}

}  // namespace kiln::toolchain
