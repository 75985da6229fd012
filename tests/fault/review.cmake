# Findings of a review of the store, each with the fault that it needed.
kiln_test(fault_review_test IN fault_clock_tests SOURCES fault/review_test.cpp fault/review_meta_test.cpp fault/review_room_test.cpp USES kiln_shifted_clock kiln_fault kiln_cache PkgConfig::lmdb LABEL fault)
kiln_test(fault_review_races_test IN fault_clock_tests SOURCES fault/review_races_test.cpp USES kiln_shifted_clock kiln_fault kiln_cache PkgConfig::lmdb LABEL fault)
kiln_test(fault_review_publisher_test IN fault_runtime_tests SOURCES fault/review_publisher_test.cpp USES kiln_runtime LABEL fault)
