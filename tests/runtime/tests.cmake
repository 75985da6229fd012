kiln_test(config_test SOURCES runtime/config_test.cpp USES kiln_runtime LABEL unit)
kiln_test(pipeline_test SOURCES runtime/pipeline_test.cpp runtime/toolchain_choice_test.cpp USES kiln_runtime LABEL process TIMEOUT 300)
add_dependencies(pipeline_test kiln-worker)
include(${CMAKE_CURRENT_LIST_DIR}/runtime_fake.cmake OPTIONAL)
