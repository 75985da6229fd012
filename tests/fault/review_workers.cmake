# Findings of a review of the compile workers: the pool and its slots, precompiled headers, and hosts that do odd things.
kiln_test(fault_review_pool_test IN fault_runtime_tests SOURCES fault/review_pool_test.cpp USES kiln_runtime LABEL fault TIMEOUT 600)
kiln_test(fault_review_header_test IN fault_runtime_tests SOURCES fault/review_header_test.cpp USES kiln_runtime LABEL fault TIMEOUT 600)
kiln_test(fault_review_host_test IN fault_runtime_tests SOURCES fault/review_host_test.cpp USES kiln_runtime LABEL fault TIMEOUT 600)
foreach(test pool header host)
  add_dependencies(fault_review_${test}_test kiln-worker)
endforeach()
