# The shipped templates. These tests compile them; on a GPU run.py compares them with float64 in torch, and
# *_gpu_test.cpp with the CPU.
kiln_tests(templates_tests SOURCES templates/*_test.cpp USES kiln_process LABEL process TIMEOUT 1500)
target_include_directories(templates_tests PRIVATE ${PROJECT_SOURCE_DIR}/templates)
kiln_tests(templates_gpu_test SOURCES templates/*/*_gpu_test.cpp USES kiln_library LABEL gpu)
add_dependencies(templates_gpu_test kiln-worker)

find_package(Python3 COMPONENTS Interpreter)
get_target_property(kiln_library_type kiln TYPE)
if(Python3_FOUND AND kiln_library_type STREQUAL "SHARED_LIBRARY")
  add_test(NAME Templates.AgreeWithFloat64InTorch COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/run.py --tests)
  set_tests_properties(Templates.AgreeWithFloat64InTorch PROPERTIES LABELS gpu TIMEOUT 600 SKIP_RETURN_CODE 77
    ENVIRONMENT "KILN_LIBRARY=$<TARGET_FILE:kiln>;KILN_TEMPLATE_PATH=${PROJECT_SOURCE_DIR}/templates;KILN_WORKER=$<TARGET_FILE:kiln-worker>")
endif()
if(Python3_FOUND)
  add_test(NAME Bench.ABaselineNamesWhatIsSlower COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/bench/baseline_test.py)
  set_tests_properties(Bench.ABaselineNamesWhatIsSlower PROPERTIES LABELS unit)
endif()
