# The kiln command as a process: what it prints, where, and its exit codes.
add_library(kiln_process STATIC ${CMAKE_CURRENT_LIST_DIR}/kiln_process.cpp ${CMAKE_CURRENT_LIST_DIR}/terminal.cpp)
target_compile_definitions(kiln_process PUBLIC KILN_COMMAND="$<TARGET_FILE:kiln-cli>"
  KILN_FAKE_CUDA="$<TARGET_FILE:kiln_fake_cuda>")
target_link_libraries(kiln_process PUBLIC kiln_toolchain nlohmann_json::nlohmann_json GTest::gtest util)
add_dependencies(kiln_process kiln-cli kiln-worker kiln_fake_cuda)

kiln_test(tools_maintenance_test SOURCES tools/verify_test.cpp tools/rewrite_test.cpp USES kiln_process kiln_cache LABEL process)
kiln_test(tools_maintenance_live_test SOURCES tools/maintenance_live_test.cpp USES kiln_process kiln_cache LABEL process)
kiln_test(tools_marks_test SOURCES tools/marks_test.cpp USES kiln_process kiln_cache LABEL process)
kiln_test(tools_prometheus_test SOURCES tools/prometheus_test.cpp USES kiln_process kiln_cache LABEL process)
kiln_test(tools_top_test SOURCES tools/top_test.cpp tools/top_terminal_test.cpp USES kiln_process kiln_cache LABEL process)
kiln_test(tools_audit_test SOURCES tools/audit_test.cpp USES kiln_process kiln_cache LABEL process)

foreach(name usage compile prewarm prewarm_stop prewarm_record prewarm_threads cache doctor terminal descriptor)
  kiln_test(tools_${name}_test SOURCES tools/${name}_test.cpp USES kiln_process LABEL process)
endforeach()
