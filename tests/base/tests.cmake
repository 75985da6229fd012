kiln_tests(base_tests SOURCES base/nvtx_test.cpp USES kiln_base LABEL process)
kiln_tests(base_tests SOURCES base/*.cpp USES kiln_base)
target_compile_definitions(base_tests PRIVATE KILN_INSTALL_PREFIX="/opt/of the package")  # as kiln's CMake package has it
if(KILN_NVTX_INCLUDE_DIR)
  add_library(kiln_nvtx_tool SHARED support/nvtx_tool/tool.cpp)
  target_include_directories(kiln_nvtx_tool SYSTEM PRIVATE ${KILN_NVTX_INCLUDE_DIR})
  set_target_properties(kiln_nvtx_tool PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_dependencies(base_tests kiln_nvtx_tool)
endif()
