# The ready table alone, and what holds of the runtime's core through its public API over the gated fake driver.
kiln_test(runtime_ready_table_test SOURCES runtime/ready_table_test.cpp USES kiln_runtime LABEL unit)

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
  kiln_test(${name} LABEL process TIMEOUT 300 USES kiln kiln_gated_cuda kiln_fake_cuda kiln_toolchain ${ARGN})
  target_compile_definitions(${name} PRIVATE KILN_FAKE_CUDA="$<TARGET_FILE:kiln_gated_cuda>" KILN_SHARED_LIBRARY="$<TARGET_FILE:kiln>")
  add_dependencies(${name} kiln-worker)
endfunction()

kiln_core_test(runtime_async_test SOURCES runtime/async_test.cpp runtime/flight_test.cpp)
kiln_core_test(runtime_scope_test SOURCES runtime/scope_test.cpp)

endif()
