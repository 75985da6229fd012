// Absolute paths of this build, for tests. They are no macros, because a compiler cache then serves the tests of
// every clone: only places.cpp is compiled with paths.
#pragma once

namespace kiln::places {

extern const char* const kSourceDirectory;
extern const char* const kBuildDirectory;
extern const char* const kCommand;        ///< the command `kiln`
extern const char* const kSharedLibrary;  ///< libkiln.so
extern const char* const kFakeCuda;  ///< the driver of this executable's tests: the fake or the gated one
extern const char* const kFakeFilesystem;  ///< to preload, like those below
extern const char* const kFaultLibrary;
extern const char* const kShiftedClock;
extern const char* const kTuneKernels;
extern const char* const kPlanKernels;
extern const char* const kNvtxTool;  ///< a tool, as NVTX loads tools

}  // namespace kiln::places
