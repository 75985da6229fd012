set(runtime_folder ${CMAKE_CURRENT_LIST_DIR})

# Tests of the static library's classes.
kiln_tests(runtime_tests SOURCES runtime/config/*_test.cpp runtime/kernels/ready_table_test.cpp runtime/state/permission_test.cpp
  runtime/tuned/pinned_choices_test.cpp USES kiln_runtime kiln_cache)
kiln_tests(runtime_tests SOURCES runtime/path/fleet_test.cpp runtime/path/fleet_delay_test.cpp runtime/path/fleet_partition_test.cpp runtime/blob/blob_fleet_test.cpp LABEL fault)
kiln_tests(runtime_tests SOURCES runtime/path/*_test.cpp runtime/blob/*_test.cpp runtime/state/recorder*_test.cpp runtime/state/*fork_test.cpp LABEL process)
target_sources(runtime_tests PRIVATE support/thread_sanitizer.cpp)
kiln_tests(reference_gpu_test SOURCES runtime/service/reference_gpu_test.cpp USES kiln_library LABEL gpu)
foreach(executable runtime_tests reference_gpu_test)
  add_dependencies(${executable} kiln-worker)
endforeach()

if(KILN_STATIC)  # all other tests need the shared library
  kiln_leave_out(runtime/*/*_test.cpp)
  return()
endif()

# The shared library over the fake driver, linked as users link it. kiln_toolchain has the
# driver's table for the tests.
set(uses kiln kiln_fake_cuda kiln_toolchain kiln_cache kiln_compile kiln_source)
kiln_tests(operator_gpu_test SOURCES runtime/operator/operator_gpu_test.cpp USES kiln kiln_toolchain LABEL gpu)
add_dependencies(operator_gpu_test kiln-worker)
set(of_fake_driver load capture concurrent load_fault remote_load)
list(TRANSFORM of_fake_driver REPLACE ".+" "runtime/kernels/\\0_test.cpp")
kiln_tests(runtime_sm80_test SOURCES runtime/launch/geometry_sm80_test.cpp USES ${uses} LABEL process)  # has another device
kiln_tests(runtime_sm103_test SOURCES runtime/kernels/other_arch_test.cpp USES ${uses} LABEL process)   # has another device, too
kiln_tests(runtime_ready_test SOURCES runtime/kernels/ready_test.cpp USES ${uses} LABEL process)        # counts allocations
kiln_tests(runtime_fake_tests SOURCES ${of_fake_driver} runtime/launch/*_test.cpp runtime/operator/*_test.cpp runtime/state/sealed_test.cpp USES ${uses} LABEL process)

# These tests run on the fake driver and on the real driver.
kiln_tests(runtime_driver_test SOURCES runtime/service/driver_test.cpp USES kiln kiln_toolchain LABEL gpu)
kiln_test_again(runtime_driver_test PREFIX Fake. LABEL process TIMEOUT 300 ENVIRONMENT KILN_TEST_FAKE=1)
kiln_tests(runtime_gpu_test SOURCES runtime/service/runtime_gpu_test.cpp USES kiln kiln_toolchain LABEL gpu)
foreach(executable runtime_sm80_test runtime_sm103_test runtime_ready_test runtime_fake_tests runtime_driver_test runtime_gpu_test)
  add_dependencies(${executable} kiln-worker kiln_fake_cuda)
endforeach()

# The shared library over the gated driver, whose loads wait while a gate is shut.
add_library(kiln_gated_cuda SHARED support/gated_driver/gated_driver.cpp)
target_include_directories(kiln_gated_cuda PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_definitions(kiln_gated_cuda PRIVATE KILN_FAKE_CUDA="$<TARGET_FILE:kiln_fake_cuda>")
target_link_libraries(kiln_gated_cuda PRIVATE kiln_toolchain)
target_link_options(kiln_gated_cuda PRIVATE -Wl,--exclude-libs,ALL)
set_target_properties(kiln_gated_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
add_dependencies(kiln_gated_cuda kiln_fake_cuda)
add_library(kiln_hidden_copy SHARED runtime/state/hidden_copy.cpp)
target_include_directories(kiln_hidden_copy PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_compile_definitions(kiln_hidden_copy PRIVATE KILN_BINARY_DIR="${PROJECT_BINARY_DIR}")
target_link_libraries(kiln_hidden_copy PRIVATE kiln_runtime)
target_link_options(kiln_hidden_copy PRIVATE -Wl,--exclude-libs,ALL)
list(APPEND uses kiln_gated_cuda)
kiln_tests(runtime_storm_test SOURCES runtime/kernels/storm_test.cpp USES ${uses} LABEL process)  # the soak runs it alone
kiln_tests(runtime_gated_tests SOURCES runtime/*/*_test.cpp USES ${uses} kiln_hidden_copy LABEL process)
foreach(executable runtime_storm_test runtime_gated_tests)
  target_sources(${executable} PRIVATE support/thread_sanitizer.cpp $<TARGET_OBJECTS:kiln_gated_places>)
  add_dependencies(${executable} kiln-worker)
endforeach()
add_test(NAME Soak.RuntimeStorm CONFIGURATIONS soak COMMAND ${CMAKE_COMMAND} -E env KILN_SOAK_SECONDS=600 $<TARGET_FILE:runtime_storm_test>)
set_tests_properties(Soak.RuntimeStorm PROPERTIES LABELS soak TIMEOUT 3600)

include(${runtime_folder}/abi/tests.cmake)
include(${runtime_folder}/install/tests.cmake)
