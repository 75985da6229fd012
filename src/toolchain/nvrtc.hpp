// libnvrtc by dlopen: a typed function table. Only the compile worker (and the in-process fallback) loads it.
#pragma once

#include <string>
#include <vector>

#include "toolchain/shared_library.hpp"

namespace kiln::toolchain {

using nvrtcProgram = struct _nvrtcProgram*;
using nvrtcResult = int;  ///< 0 is NVRTC_SUCCESS

/// Declared here, not included, because kiln builds without a toolkit. tests/toolchain compares with
/// nvrtc.h where there is one.
struct Nvrtc {
  const char* (*GetErrorString)(nvrtcResult);
  nvrtcResult (*Version)(int* major, int* minor);
  nvrtcResult (*GetNumSupportedArchs)(int*);
  nvrtcResult (*GetSupportedArchs)(int*);
  nvrtcResult (*CreateProgram)(nvrtcProgram*, const char* src, const char* name, int headers,
                               const char* const* sources, const char* const* include_names);
  nvrtcResult (*DestroyProgram)(nvrtcProgram*);
  nvrtcResult (*CompileProgram)(nvrtcProgram, int count, const char* const* options);
  nvrtcResult (*GetCUBINSize)(nvrtcProgram, size_t*);
  nvrtcResult (*GetCUBIN)(nvrtcProgram, char*);
  nvrtcResult (*GetPTXSize)(nvrtcProgram, size_t*);
  nvrtcResult (*GetPTX)(nvrtcProgram, char*);
  nvrtcResult (*GetProgramLogSize)(nvrtcProgram, size_t*);
  nvrtcResult (*GetProgramLog)(nvrtcProgram, char*);
  nvrtcResult (*AddNameExpression)(nvrtcProgram, const char*);
  nvrtcResult (*GetLoweredName)(nvrtcProgram, const char*, const char**);
  /// These two are null before 12.8.
  nvrtcResult (*SetPCHHeapSize)(size_t) = nullptr;
  nvrtcResult (*GetPCHCreateStatus)(nvrtcProgram) = nullptr;

  int major = 0, minor = 0;
  std::vector<int> archs;  ///< supported, ascending: 75 80 ... 121

  /// Loads the builtins by absolute path, because libnvrtc would dlopen them by soname; then loads the
  /// library. Throws Error(no_compiler) that names path and reason. The result lives as long as the process.
  static const Nvrtc& load(const std::string& nvrtc_path, const std::string& builtins_path);
  bool at_least(int want_major, int want_minor) const noexcept {
    return major > want_major || (major == want_major && minor >= want_minor);
  }
  /// True from 13.0 on, the version that was tried here. 12.8 and 12.9 have the functions, too, but crashed
  /// other projects.
  bool has_precompiled_headers() const noexcept {
    return at_least(13, 0) && SetPCHHeapSize && GetPCHCreateStatus;
  }
  /// Throws Error(internal) "nvrtcX: NVRTC_ERROR_...".
  void check(nvrtcResult result, const char* call) const;
};

}  // namespace kiln::toolchain
