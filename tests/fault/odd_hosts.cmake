# The compile workers: the pool and its slots, precompiled headers, and hosts that do odd things.
kiln_test(fault_pool_crowd_test IN fault_runtime_tests SOURCES fault/pool_crowd_test.cpp USES kiln_runtime LABEL fault TIMEOUT 600)
kiln_test(fault_odd_headers_test IN fault_runtime_tests SOURCES fault/odd_headers_test.cpp USES kiln_runtime LABEL fault TIMEOUT 600)
kiln_test(fault_odd_hosts_test IN fault_runtime_tests SOURCES fault/odd_hosts_test.cpp USES kiln_runtime LABEL fault TIMEOUT 600)
foreach(test pool_crowd odd_headers odd_hosts)
  add_dependencies(fault_${test}_test kiln-worker)
endforeach()
