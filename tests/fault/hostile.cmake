# Sources that never end or read where they must not, workers that answer garbage.
kiln_test(fault_hostile_test IN fault_runtime_tests SOURCES fault/hostile_source_test.cpp fault/hostile_include_test.cpp fault/hostile_worker_test.cpp USES kiln_runtime LABEL fault TIMEOUT 300)
target_include_directories(fault_hostile_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
add_dependencies(fault_hostile_test kiln-worker)
