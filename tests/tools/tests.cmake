# The kiln command as a process: what it prints, where, and its exit codes.
find_package(valijson REQUIRED)
add_library(kiln_process STATIC ${CMAKE_CURRENT_LIST_DIR}/kiln_process.cpp ${CMAKE_CURRENT_LIST_DIR}/terminal.cpp
  ${CMAKE_CURRENT_LIST_DIR}/schema.cpp)
if(KILN_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # GCC bug 105562: false alarms within <regex>
  set_source_files_properties(tools/schema.cpp PROPERTIES COMPILE_OPTIONS -Wno-maybe-uninitialized)
endif()
target_compile_definitions(kiln_process PUBLIC KILN_COMMAND="$<TARGET_FILE:kiln-cli>"
  KILN_FAKE_CUDA="$<TARGET_FILE:kiln_fake_cuda>" KILN_SCHEMAS="${PROJECT_SOURCE_DIR}/docs/schema")
target_link_libraries(kiln_process PUBLIC kiln_toolchain nlohmann_json::nlohmann_json GTest::gtest util)
add_dependencies(kiln_process kiln-cli kiln-worker kiln_fake_cuda)

kiln_test(tools_maintenance_test SOURCES tools/verify_test.cpp tools/rewrite_test.cpp USES kiln_process kiln_cache LABEL process)
kiln_test(tools_maintenance_live_test SOURCES tools/maintenance_live_test.cpp USES kiln_process kiln_cache LABEL process)
kiln_test(tools_marks_test SOURCES tools/marks_test.cpp USES kiln_process kiln_cache LABEL process)
kiln_test(tools_prometheus_test SOURCES tools/prometheus_test.cpp USES kiln_process kiln_cache LABEL process)
kiln_test(tools_top_test SOURCES tools/top_test.cpp tools/top_terminal_test.cpp USES kiln_process kiln_cache LABEL process)
kiln_test(tools_audit_test SOURCES tools/audit_test.cpp USES kiln_process kiln_cache LABEL process)
kiln_test(tools_bundle_test SOURCES tools/bundle_test.cpp tools/bundle_signature_test.cpp tools/bundle_refusal_test.cpp tools/bundle_fault_test.cpp
  USES kiln_process kiln_cache kiln_compile kiln_make_cubin PkgConfig::zstd LABEL process TIMEOUT 300)

kiln_test(tools_removed_meanwhile_test SOURCES tools/removed_meanwhile_test.cpp
  USES kiln_process kiln_cache kiln_compile kiln_make_cubin LABEL process TIMEOUT 600)

foreach(name usage compile prewarm prewarm_room prewarm_stop prewarm_record prewarm_threads cache terminal descriptor completion everywhere)
  kiln_test(tools_${name}_test SOURCES tools/${name}_test.cpp USES kiln_process LABEL process TIMEOUT 600)
endforeach()
kiln_test(tools_doctor_test SOURCES tools/doctor_test.cpp USES kiln_process kiln_cache LABEL process)
kiln_test(tools_why_test SOURCES tools/why_test.cpp USES kiln_process kiln_compile kiln_cache LABEL process)
kiln_test(tools_ls_test SOURCES tools/ls_test.cpp USES kiln_process kiln_compile kiln_cache LABEL process)
set(import_sources)
foreach(name tokens brackets source signature types draft parameters arguments manifest)
  list(APPEND import_sources ${PROJECT_SOURCE_DIR}/tools/kiln/import_${name}.cpp)
endforeach()
kiln_test(tools_import_declaration_test SOURCES tools/import_declaration_test.cpp ${import_sources} USES kiln_source LABEL unit)
kiln_test(tools_import_test SOURCES tools/import_test.cpp USES kiln_process LABEL process)
kiln_test(tools_key_difference_test SOURCES tools/key_difference_test.cpp ${PROJECT_SOURCE_DIR}/tools/kiln/key_difference.cpp
  ${PROJECT_SOURCE_DIR}/tools/kiln/key_sentences.cpp ${PROJECT_SOURCE_DIR}/tools/kiln/output.cpp ${PROJECT_SOURCE_DIR}/tools/kiln/table.cpp
  USES kiln_compile kiln_cache nlohmann_json::nlohmann_json LABEL unit)
kiln_test(tools_key_name_test SOURCES tools/key_name_test.cpp ${PROJECT_SOURCE_DIR}/tools/kiln/key_name.cpp USES kiln_base LABEL unit)
kiln_test(tools_report_test SOURCES tools/report_test.cpp USES kiln_process kiln_cache kiln_compile LABEL process)
kiln_test(tools_fill_values_test SOURCES tools/fill_values_test.cpp ${PROJECT_SOURCE_DIR}/tools/kiln/fill_values.cpp USES kiln_base LABEL unit)
kiln_test(tools_run_fill_test SOURCES tools/run_fill_test.cpp USES kiln_process LABEL process)
kiln_test(tools_run_test SOURCES tools/run_test.cpp USES kiln_process LABEL process)
kiln_test(tools_run_gpu_test SOURCES tools/run_gpu_test.cpp USES kiln_process LABEL gpu)
kiln_test(tools_run_report_test SOURCES tools/run_report_test.cpp ${PROJECT_SOURCE_DIR}/tools/kiln/run_report.cpp
  ${PROJECT_SOURCE_DIR}/tools/kiln/output.cpp ${PROJECT_SOURCE_DIR}/tools/kiln/table.cpp
  USES kiln_runtime nlohmann_json::nlohmann_json LABEL unit)
kiln_test(tools_limits_test SOURCES tools/limits_test.cpp USES kiln_process LABEL process)
kiln_test(tools_prewarm_trace_test SOURCES tools/prewarm_trace_test.cpp USES kiln_process LABEL process)
foreach(name tools_bundle_test tools_removed_meanwhile_test)
  target_compile_definitions(${name} PRIVATE KILN_FAULT_LIBRARY="$<TARGET_FILE:kiln_fault>")
  add_dependencies(${name} kiln_fault)
endforeach()
if(NOT KILN_SANITIZE)  # the command that preloads it is built without
  add_library(kiln_tune_kernels SHARED tools/tune_kernels.cpp)
  target_include_directories(kiln_tune_kernels PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR})
  target_link_libraries(kiln_tune_kernels PRIVATE kiln_fake_cuda)
  kiln_test(tools_tune_test SOURCES tools/tune_test.cpp tools/tune_shipped_test.cpp tools/tune_fault_test.cpp USES kiln_process kiln_cache LABEL process TIMEOUT 300)
  target_compile_definitions(tools_tune_test PRIVATE KILN_TUNE_KERNELS="$<TARGET_FILE:kiln_tune_kernels>")
  add_dependencies(tools_tune_test kiln_tune_kernels)
  add_library(kiln_plan_kernels SHARED tools/plan_kernels.cpp)
  target_include_directories(kiln_plan_kernels PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR})
  target_link_libraries(kiln_plan_kernels PRIVATE kiln_fake_cuda)
  kiln_test(tools_run_plan_test SOURCES tools/run_plan_test.cpp USES kiln_process LABEL process)
  target_compile_definitions(tools_run_plan_test PRIVATE KILN_PLAN_KERNELS="$<TARGET_FILE:kiln_plan_kernels>")
  add_dependencies(tools_run_plan_test kiln_plan_kernels)
endif()
kiln_test(tools_lint_test SOURCES tools/lint_test.cpp USES kiln_process LABEL process)
kiln_test(tools_lint_manifest_test SOURCES tools/lint_manifest_test.cpp ${PROJECT_SOURCE_DIR}/tools/kiln/lint_manifest.cpp
  ${PROJECT_SOURCE_DIR}/tools/kiln/lint_lines.cpp ${PROJECT_SOURCE_DIR}/tools/kiln/lint_uses.cpp
  ${PROJECT_SOURCE_DIR}/tools/kiln/lint_debris.cpp ${PROJECT_SOURCE_DIR}/tools/kiln/output.cpp
  ${PROJECT_SOURCE_DIR}/tools/kiln/table.cpp USES kiln_source kiln_toolchain kiln_cache nlohmann_json::nlohmann_json LABEL unit)
kiln_test(tools_other_compilers_test SOURCES tools/other_compilers_test.cpp USES kiln_source kiln_toolchain LABEL process TIMEOUT 300)
kiln_test(tools_remote_test SOURCES tools/remote_test.cpp tools/remote_missed_test.cpp USES kiln_process kiln_cache LABEL process TIMEOUT 300)
kiln_test(tools_remote_fleet_test SOURCES tools/remote_fleet_test.cpp USES kiln_process kiln_cache LABEL process TIMEOUT 600 ALONE)
kiln_test(tools_remote_network_test SOURCES tools/remote_network_test.cpp USES kiln_process kiln_cache LABEL process TIMEOUT 300)
kiln_test(tools_remote_tls_test SOURCES tools/remote_tls_test.cpp USES kiln_process kiln_cache LABEL process TIMEOUT 300)
kiln_test(tools_remote_cluster_test SOURCES tools/remote_cluster_test.cpp USES kiln_process kiln_cache LABEL process TIMEOUT 300)
if(NOT KILN_SANITIZE)  # as what preloads the clock
  kiln_test(tools_remote_clock_test SOURCES tools/remote_clock_test.cpp USES kiln_process kiln_cache LABEL process TIMEOUT 300)
  foreach(name tools_remote_clock_test tools_remote_tls_test)
    target_compile_definitions(${name} PRIVATE KILN_SHIFTED_CLOCK="$<TARGET_FILE:kiln_shifted_clock>")
    add_dependencies(${name} kiln_shifted_clock)
  endforeach()
endif()
