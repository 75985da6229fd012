# The ready table alone, and what holds of the runtime's core through its public API over the gated fake driver.
kiln_test(runtime_ready_table_test IN runtime_tests SOURCES runtime/ready_table_test.cpp USES kiln_runtime LABEL unit)
kiln_test(runtime_pinned_choices_test IN runtime_tests SOURCES runtime/pinned_choices_test.cpp USES kiln_runtime LABEL unit)

if(TARGET kiln AND NOT KILN_STATIC)

add_library(kiln_gated_cuda SHARED support/gated_driver/gated_driver.cpp)
target_include_directories(kiln_gated_cuda PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_definitions(kiln_gated_cuda PRIVATE KILN_FAKE_CUDA="$<TARGET_FILE:kiln_fake_cuda>")
target_link_libraries(kiln_gated_cuda PRIVATE kiln_toolchain)
target_link_options(kiln_gated_cuda PRIVATE -Wl,--exclude-libs,ALL)
set_target_properties(kiln_gated_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
add_dependencies(kiln_gated_cuda kiln_fake_cuda)

# The fixtures load KILN_FAKE_CUDA: here that is the gated one.
function(kiln_core_test name)
  set(in IN runtime_gated_tests)
  if(name STREQUAL runtime_storm_test)  # the soak runs it alone
    set(in)
  endif()
  kiln_test(${name} ${in} LABEL process TIMEOUT 300 USES kiln kiln_gated_cuda kiln_fake_cuda kiln_toolchain ${ARGN})
  target_compile_definitions(${name} PRIVATE KILN_FAKE_CUDA="$<TARGET_FILE:kiln_gated_cuda>" KILN_SHARED_LIBRARY="$<TARGET_FILE:kiln>")
  if(NOT in OR name STREQUAL runtime_async_test)  # once in an executable
    target_sources(${name} PRIVATE support/thread_sanitizer.cpp)
  endif()
  add_dependencies(${name} kiln-worker)
endfunction()

kiln_core_test(runtime_async_test SOURCES runtime/async_test.cpp runtime/flight_test.cpp)
kiln_core_test(runtime_scope_test SOURCES runtime/scope_test.cpp)
kiln_core_test(runtime_prepare_test kiln_source SOURCES runtime/prepare_test.cpp runtime/seal_events_test.cpp)
kiln_core_test(runtime_fallback_test SOURCES runtime/fallback_test.cpp)
kiln_core_test(runtime_fingerprint_test kiln_cache kiln_compile SOURCES runtime/fingerprint_test.cpp)
kiln_core_test(runtime_tuned_test kiln_cache kiln_compile SOURCES runtime/tuned_test.cpp runtime/tuned_record_test.cpp runtime/tuned_wait_test.cpp)
kiln_core_test(runtime_events_test SOURCES runtime/events_test.cpp)
kiln_core_test(runtime_edges_test SOURCES runtime/call_edges_test.cpp runtime/refused_values_test.cpp runtime/fallback_faults_test.cpp)
kiln_test(runtime_background_fork_test IN runtime_tests SOURCES runtime/background_fork_test.cpp USES kiln_runtime LABEL process TIMEOUT 300)
add_dependencies(runtime_background_fork_test kiln-worker)
kiln_core_test(runtime_storm_test SOURCES runtime/storm_test.cpp)
add_test(NAME Soak.RuntimeStorm CONFIGURATIONS soak COMMAND ${CMAKE_COMMAND} -E env KILN_SOAK_SECONDS=600 $<TARGET_FILE:runtime_storm_test>)
set_tests_properties(Soak.RuntimeStorm PROPERTIES LABELS soak TIMEOUT 3600)

add_library(kiln_hidden_copy SHARED runtime/hidden_copy.cpp)
target_include_directories(kiln_hidden_copy PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_compile_definitions(kiln_hidden_copy PRIVATE KILN_BINARY_DIR="${PROJECT_BINARY_DIR}")
target_link_libraries(kiln_hidden_copy PRIVATE kiln_runtime)
target_link_options(kiln_hidden_copy PRIVATE -Wl,--exclude-libs,ALL)
kiln_core_test(runtime_process_seal_test kiln_hidden_copy SOURCES runtime/process_seal_test.cpp)

endif()
