#include "support/places.hpp"

namespace kiln::places {

const char* const kSourceDirectory = KILN_SOURCE_DIR;
const char* const kBuildDirectory = KILN_BINARY_DIR;
const char* const kCommand = KILN_BINARY_DIR "/kiln";
const char* const kSharedLibrary = KILN_BINARY_DIR "/libkiln.so";
const char* const kFakeCuda = KILN_BINARY_DIR "/tests/libkiln_" KILN_TEST_DRIVER ".so";
const char* const kFakeFilesystem = KILN_BINARY_DIR "/libkiln_fake_filesystem.so";
const char* const kFaultLibrary = KILN_BINARY_DIR "/tests/libkiln_fault.so";
const char* const kShiftedClock = KILN_BINARY_DIR "/tests/libkiln_shifted_clock.so";
const char* const kTuneKernels = KILN_BINARY_DIR "/libkiln_tune_kernels.so";
const char* const kPlanKernels = KILN_BINARY_DIR "/libkiln_plan_kernels.so";
const char* const kNvtxTool = KILN_BINARY_DIR "/tests/libkiln_nvtx_tool.so";

}  // namespace kiln::places
