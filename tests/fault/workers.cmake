kiln_test(fault_workers_test IN fault_runtime_tests SOURCES fault/workers_test.cpp USES kiln_runtime LABEL fault TIMEOUT 900 LOCK all_cores)
add_dependencies(fault_workers_test kiln-worker)
