# Record, prewarm, run sealed. It runs on the fake driver, and with the label gpu on the real driver.
add_executable(decoder_loop ${PROJECT_SOURCE_DIR}/examples/decoder/main.cpp)
set_target_properties(decoder_loop PROPERTIES CXX_STANDARD 17)
target_link_libraries(decoder_loop PRIVATE kiln dl)
add_dependencies(decoder_loop kiln-worker kiln-cli)
add_test(NAME ExampleDecoder.RunsSealedFromARecord COMMAND ${PROJECT_SOURCE_DIR}/tests/scenario/decoder_test.sh
  $<TARGET_FILE:decoder_loop> $<TARGET_FILE:kiln-cli>)
set_tests_properties(ExampleDecoder.RunsSealedFromARecord PROPERTIES LABELS process TIMEOUT 300 SKIP_RETURN_CODE 77
  ENVIRONMENT "KILN_LIBCUDA=$<TARGET_FILE:kiln_fake_cuda>")
add_test(NAME ExampleDecoder.RunsSealedFromARecordOnTheGpu COMMAND ${PROJECT_SOURCE_DIR}/tests/scenario/decoder_test.sh
  $<TARGET_FILE:decoder_loop> $<TARGET_FILE:kiln-cli>)
set_tests_properties(ExampleDecoder.RunsSealedFromARecordOnTheGpu PROPERTIES LABELS gpu TIMEOUT 300 SKIP_RETURN_CODE 77)

# A record becomes a signed bundle, which a sealed engine elsewhere uses; then `kiln why` explains an edit.
add_test(NAME Scenario.AShippedCacheServesAndWhyNamesTheEditedHeader COMMAND ${PROJECT_SOURCE_DIR}/tests/scenario/ship_test.sh
  ${PROJECT_BINARY_DIR} $<TARGET_FILE:kiln_fake_cuda>)
set_tests_properties(Scenario.AShippedCacheServesAndWhyNamesTheEditedHeader PROPERTIES LABELS process TIMEOUT 300 SKIP_RETURN_CODE 77)

# The example engine, built in the tree for the GPU machine. install_test.sh installs and moves it.
add_executable(example_engine ${PROJECT_SOURCE_DIR}/examples/engine/main.cpp)
set_target_properties(example_engine PROPERTIES CXX_STANDARD 17)
target_link_libraries(example_engine PRIVATE kiln dl)
add_dependencies(example_engine kiln-worker)
add_test(NAME ExampleEngine.ComputesOnTheGpu COMMAND example_engine --require-gpu)
set_tests_properties(ExampleEngine.ComputesOnTheGpu PROPERTIES LABELS gpu TIMEOUT 300 SKIP_RETURN_CODE 77)
if(NOT KILN_SANITIZE)  # install_test.sh builds the example without sanitizers
  add_library(kiln_host_kernels SHARED runtime/install/host_kernels.cpp)
  target_include_directories(kiln_host_kernels PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(kiln_host_kernels PRIVATE kiln_fake_cuda)
  add_test(NAME Install.TheExampleEngineBuildsRunsAndMoves COMMAND ${runtime_folder}/install/install_test.sh ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} ${CMAKE_CXX_COMPILER} $<TARGET_FILE:kiln_fake_cuda> $<TARGET_FILE:kiln_host_kernels>)
  set_tests_properties(Install.TheExampleEngineBuildsRunsAndMoves PROPERTIES LABELS process TIMEOUT 300 SKIP_RETURN_CODE 77)
  # Skipped (77) where cargo or bindgen is not installed. The part `rust` of tools/nightly.sh installs both.
  add_test(NAME ExampleRust.BuildsRunsAndKeepsItsPromises COMMAND ${runtime_folder}/install/rust_test.sh ${PROJECT_BINARY_DIR}
    ${PROJECT_SOURCE_DIR} $<TARGET_FILE:kiln_fake_cuda> $<TARGET_FILE:kiln_host_kernels>)
  set_tests_properties(ExampleRust.BuildsRunsAndKeepsItsPromises PROPERTIES LABELS process TIMEOUT 300 SKIP_RETURN_CODE 77)
  if(TARGET kiln_static)
    add_test(NAME Install.ComponentsAndPackagesOfCMakeServePrograms COMMAND ${runtime_folder}/install/components_test.sh ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR}
      ${PROJECT_SOURCE_DIR} ${CMAKE_CXX_COMPILER})
    set_tests_properties(Install.ComponentsAndPackagesOfCMakeServePrograms PROPERTIES LABELS process TIMEOUT 1800)
    add_test(NAME Install.AStaticProgramFindsTemplatesAndWorker COMMAND ${runtime_folder}/install/install_static_test.sh ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR}
      ${PROJECT_SOURCE_DIR} ${CMAKE_CXX_COMPILER})
    set_tests_properties(Install.AStaticProgramFindsTemplatesAndWorker PROPERTIES LABELS process TIMEOUT 300 SKIP_RETURN_CODE 77)
  endif()
endif()
