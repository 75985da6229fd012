# The runtime through its public API: the shared library over the fake driver, and, labelled gpu, over the real one.
set(runtime_tests ${CMAKE_CURRENT_LIST_DIR})
if(TARGET kiln AND NOT KILN_STATIC)

# kiln_toolchain gives the tests the driver's table; kiln itself is the library that users link.
function(kiln_fake_test name)
  set(in IN runtime_fake_tests)
  # What is true of a whole process: one counts what operator new is asked for, the other has a device of sm_80.
  if(name STREQUAL runtime_ready_test OR name STREQUAL runtime_sm80_test)
    set(in)
  endif()
  kiln_test(${name} ${in} LABEL process TIMEOUT 300 USES kiln kiln_fake_cuda kiln_toolchain ${ARGN})
  target_compile_definitions(${name} PRIVATE KILN_FAKE_CUDA="$<TARGET_FILE:kiln_fake_cuda>")
  add_dependencies(${name} kiln-worker)
endfunction()

kiln_fake_test(runtime_load_test SOURCES runtime/load_test.cpp runtime/capture_test.cpp runtime/sealed_test.cpp runtime/concurrent_test.cpp)
kiln_fake_test(runtime_load_fault_test kiln_cache kiln_compile SOURCES runtime/load_fault_test.cpp)
kiln_fake_test(runtime_remote_load_test kiln_cache SOURCES runtime/remote_load_test.cpp)
kiln_fake_test(runtime_launch_test SOURCES runtime/launch_test.cpp runtime/argument_types_test.cpp runtime/geometry_test.cpp runtime/geometry_once_test.cpp)
kiln_fake_test(runtime_launch_errors_test SOURCES runtime/launch_errors_test.cpp)
kiln_fake_test(runtime_attention_test SOURCES runtime/attention_test.cpp)
kiln_fake_test(runtime_sm80_test SOURCES runtime/geometry_sm80_test.cpp)
kiln_fake_test(runtime_ready_test SOURCES runtime/ready_test.cpp)
# The same tests on the fake driver and on the real one.
kiln_test(runtime_driver_test LABEL gpu TIMEOUT 300 USES kiln kiln_toolchain SOURCES runtime/driver_test.cpp)
target_compile_definitions(runtime_driver_test PRIVATE KILN_FAKE_CUDA="$<TARGET_FILE:kiln_fake_cuda>")
add_dependencies(runtime_driver_test kiln-worker kiln_fake_cuda)
kiln_test_again(runtime_driver_test PREFIX Fake. LABEL process TIMEOUT 300 ENVIRONMENT KILN_TEST_FAKE=1)
kiln_test(runtime_gpu_test LABEL gpu TIMEOUT 300 USES kiln kiln_toolchain SOURCES runtime/runtime_gpu_test.cpp)
add_dependencies(runtime_gpu_test kiln-worker)

# The C ABI from C.
add_executable(c_abi_test runtime/c_abi_test.c)
set_target_properties(c_abi_test PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
set_property(TARGET c_abi_test PROPERTY COMPILE_OPTIONS -Wall -Wextra -Wpedantic -Wstrict-prototypes -Werror)
target_link_libraries(c_abi_test PRIVATE kiln kiln_fake_cuda)
add_dependencies(c_abi_test kiln-worker)
foreach(name null_handles_are_invalid_arguments struct_sizes_are_respected errors_say_what_and_where gets_and_launches attention_plans scopes_futures_plans_and_seals
    a_service_whose_mode_nobody_set_is_sealed_by_its_seal)
  add_test(NAME CAbi.${name} COMMAND ${runtime_tests}/in_temporary_directory.sh $<TARGET_FILE:c_abi_test> ${name})
  set_tests_properties(CAbi.${name} PROPERTIES LABELS process TIMEOUT 120 SKIP_RETURN_CODE 77
    ENVIRONMENT "KILN_LIBCUDA=$<TARGET_FILE:kiln_fake_cuda>")
endforeach()

# Each public header compiles alone, twice in one unit, with warnings as errors.
file(GLOB public_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/include/kiln/*)
foreach(header ${public_headers})
  string(MAKE_C_IDENTIFIER ${header} id)
  set(text "#include <${header}>\n#include <${header}>\n")
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/headers/${id}.cpp CONTENT "${text}")
  add_test(NAME Headers.${header}.Cxx17 COMMAND ${CMAKE_CXX_COMPILER} -std=c++17 -Wall -Wextra -Wshadow -Wold-style-cast -Werror -pedantic
    "-DKILN_INSTALL_PREFIX=\"/opt/kiln\""
    -fsyntax-only -I ${PROJECT_SOURCE_DIR}/include ${CMAKE_CURRENT_BINARY_DIR}/headers/${id}.cpp)
  set(names Headers.${header}.Cxx17)
  if(header MATCHES "\\.h$")
    file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/headers/${id}.c CONTENT "${text}")
    add_test(NAME Headers.${header}.C11 COMMAND ${CMAKE_C_COMPILER} -std=c11 -Wall -Wextra -Wstrict-prototypes -Werror -pedantic
      "-DKILN_INSTALL_PREFIX=\"/opt/kiln\""
      -fsyntax-only -I ${PROJECT_SOURCE_DIR}/include ${CMAKE_CURRENT_BINARY_DIR}/headers/${id}.c)
    list(APPEND names Headers.${header}.C11)
  endif()
  set_tests_properties(${names} PROPERTIES LABELS unit TIMEOUT 60)
endforeach()

add_test(NAME ArgumentTypes.WhatCanNeverBeOneDoesNotCompile COMMAND ${runtime_tests}/argument_rules_test.sh
  ${CMAKE_CXX_COMPILER} ${PROJECT_SOURCE_DIR}/include)
set_tests_properties(ArgumentTypes.WhatCanNeverBeOneDoesNotCompile PROPERTIES LABELS unit TIMEOUT 120)

add_test(NAME Library.ExportsOnlyKilnAndNeedsNoCuda COMMAND ${runtime_tests}/symbols_test.sh $<TARGET_FILE:kiln>)
set_tests_properties(Library.ExportsOnlyKilnAndNeedsNoCuda PROPERTIES LABELS unit)

# Record, prewarm, run sealed: on the fake driver here, on the real one with the label gpu.
add_executable(decoder_loop ${PROJECT_SOURCE_DIR}/examples/decoder/main.cpp)
set_target_properties(decoder_loop PROPERTIES CXX_STANDARD 17)
target_link_libraries(decoder_loop PRIVATE kiln dl)
add_dependencies(decoder_loop kiln-worker kiln-cli)
add_test(NAME Decoder.RunsSealedFromARecord COMMAND ${PROJECT_SOURCE_DIR}/tests/scenario/decoder_test.sh
  $<TARGET_FILE:decoder_loop> $<TARGET_FILE:kiln-cli>)
set_tests_properties(Decoder.RunsSealedFromARecord PROPERTIES LABELS process TIMEOUT 300 SKIP_RETURN_CODE 77
  ENVIRONMENT "KILN_LIBCUDA=$<TARGET_FILE:kiln_fake_cuda>")
add_test(NAME Decoder.RunsSealedFromARecordOnTheGpu COMMAND ${PROJECT_SOURCE_DIR}/tests/scenario/decoder_test.sh
  $<TARGET_FILE:decoder_loop> $<TARGET_FILE:kiln-cli>)
set_tests_properties(Decoder.RunsSealedFromARecordOnTheGpu PROPERTIES LABELS gpu TIMEOUT 300 SKIP_RETURN_CODE 77)

# From a record to a signed bundle to a sealed engine elsewhere, and `why` after an edit.
add_test(NAME Scenario.AShippedCacheServesAndWhyNamesTheEditedHeader COMMAND ${PROJECT_SOURCE_DIR}/tests/scenario/ship_test.sh
  ${PROJECT_BINARY_DIR} $<TARGET_FILE:kiln_fake_cuda>)
set_tests_properties(Scenario.AShippedCacheServesAndWhyNamesTheEditedHeader PROPERTIES LABELS process TIMEOUT 300 SKIP_RETURN_CODE 77)

# The example of an engine, in tree for the GPU machine; installed and moved by install_test.sh.
add_executable(example_engine ${PROJECT_SOURCE_DIR}/examples/engine/main.cpp)
set_target_properties(example_engine PROPERTIES CXX_STANDARD 17)
target_link_libraries(example_engine PRIVATE kiln dl)
add_dependencies(example_engine kiln-worker)
add_test(NAME Consumer.ComputesOnTheGpu COMMAND example_engine --require-gpu)
set_tests_properties(Consumer.ComputesOnTheGpu PROPERTIES LABELS gpu TIMEOUT 300 SKIP_RETURN_CODE 77)
if(NOT KILN_SANITIZE)  # the installed example is built without
  add_library(kiln_host_kernels SHARED runtime/host_kernels.cpp)
  target_include_directories(kiln_host_kernels PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(kiln_host_kernels PRIVATE kiln_fake_cuda)
  add_test(NAME Install.ConsumerBuildsRunsAndMoves COMMAND ${runtime_tests}/install_test.sh ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${CMAKE_CXX_COMPILER} $<TARGET_FILE:kiln_fake_cuda> $<TARGET_FILE:kiln_host_kernels>)
  set_tests_properties(Install.ConsumerBuildsRunsAndMoves PROPERTIES LABELS process TIMEOUT 300 SKIP_RETURN_CODE 77)
  if(TARGET kiln_tested_archive)
    add_test(NAME Install.AStaticProgramFindsTemplatesAndWorker COMMAND ${runtime_tests}/install_static_test.sh ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR}
      ${PROJECT_SOURCE_DIR} ${CMAKE_CXX_COMPILER})
    set_tests_properties(Install.AStaticProgramFindsTemplatesAndWorker PROPERTIES LABELS process TIMEOUT 300 SKIP_RETURN_CODE 77)
  endif()
endif()

endif()
