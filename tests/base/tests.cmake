kiln_test(base_test IN base_tests SOURCES base/base_test.cpp base/lazy_test.cpp base/log_test.cpp USES kiln_base LABEL unit)
# As a program that kiln's CMake package builds against the static library.
kiln_test(installation_test IN base_tests SOURCES base/installation_test.cpp USES kiln_base LABEL unit)
target_compile_definitions(installation_test PRIVATE KILN_INSTALL_PREFIX="/opt/of the package")

# A tool as NVTX loads them, and the ranges that it sees.
kiln_test(nvtx_test IN base_tests SOURCES base/nvtx_test.cpp USES kiln_base LABEL process)
target_compile_definitions(nvtx_test PRIVATE KILN_NVTX_TOOL="${PROJECT_BINARY_DIR}/tests/libkiln_nvtx_tool.so")
if(KILN_NVTX_INCLUDE_DIR)
  add_library(kiln_nvtx_tool SHARED support/nvtx_tool/tool.cpp)
  target_include_directories(kiln_nvtx_tool SYSTEM PRIVATE ${KILN_NVTX_INCLUDE_DIR})
  set_target_properties(kiln_nvtx_tool PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_dependencies(nvtx_test kiln_nvtx_tool)
endif()
