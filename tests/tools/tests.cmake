# The kiln command as a process: its output and its exit codes.
find_package(valijson REQUIRED)
add_library(kiln_process STATIC tools/kiln_process.cpp tools/terminal.cpp tools/schema.cpp)
set_source_files_properties(tools/schema.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # slowest to compile
if(KILN_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # GCC bug 105562: false alarms in <regex>
  set_source_files_properties(tools/schema.cpp PROPERTIES COMPILE_OPTIONS -Wno-maybe-uninitialized)
endif()
target_include_directories(kiln_process PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(kiln_process PUBLIC kiln_places kiln_toolchain nlohmann_json::nlohmann_json GTest::gtest util)
add_dependencies(kiln_process kiln-cli kiln-worker kiln_fake_cuda)

# Unit tests of classes of the command families.
kiln_tests(tools_unit_tests SOURCES tools/compile/other_compilers_test.cpp USES kiln_library LABEL process)
kiln_tests(tools_unit_tests SOURCES tools/import/declaration_test.cpp tools/store/key_*_test.cpp tools/run/fill_values_test.cpp
  tools/run/report_test.cpp tools/lint/manifest_test.cpp tools/caches/profiles_test.cpp
  USES kiln_tool_import kiln_tool_store kiln_tool_run kiln_tool_lint kiln_tool_caches kiln_places)
kiln_tests(tools_unit_tests SOURCES tools/*/any_backend_test.cpp USES kiln_tool_doctor kiln_tool_fleet kiln_tool_prewarm PkgConfig::sodium)

kiln_tests(tools_run_gpu_test SOURCES tools/run/gpu_test.cpp USES kiln_process LABEL gpu)

# Libraries that the command preloads, or whose kernels it launches on the fake
# driver. The command then has no sanitizers.
if(KILN_SANITIZE)
  kiln_leave_out(tools/tune/*_test.cpp tools/run/plan_test.cpp tools/fleet/clock_test.cpp)
else()
  add_library(kiln_tune_kernels SHARED tools/tune/kernels.cpp)
  add_library(kiln_plan_kernels SHARED tools/run/plan_kernels.cpp)
  foreach(library kiln_tune_kernels kiln_plan_kernels)
    target_include_directories(${library} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR})
    target_link_libraries(${library} PRIVATE kiln_fake_cuda)
  endforeach()
endif()
set(uses kiln_process kiln_cache kiln_compile kiln_make_cubin PkgConfig::zstd)
kiln_tests(tools_tests SOURCES tools/fleet/fleet_test.cpp USES ${uses} LABEL process TIMEOUT 600 ALONE)
kiln_tests(tools_tests SOURCES tools/*/*_test.cpp LABEL process TIMEOUT 600)
add_dependencies(tools_tests kiln_fault kiln_shifted_clock)
if(NOT KILN_SANITIZE)
  add_dependencies(tools_tests kiln_tune_kernels kiln_plan_kernels)
endif()

# The check of tools/wheel.sh. The wheels themselves are made and installed by tools/nightly.sh.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME Wheel.ABreachIsNamed COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/wheel/check_test.py)
  set_tests_properties(Wheel.ABreachIsNamed PROPERTIES LABELS unit TIMEOUT 60)
endif()
