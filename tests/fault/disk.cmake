# The disk rows of the fault matrix (docs/reliability.md); each test prints its row as a line "FIGURES ...". The soaks are the same
# programs run by hand: KILN_SOAK_STATES=200000 fault_power_loss_test --gtest_filter='*AtAnyCall'; KILN_SOAK_PUTS=100000 fault_storm_test.
include(${CMAKE_CURRENT_LIST_DIR}/../support/fault/fault.cmake)
kiln_test(fault_interposer_test IN fault_store_tests SOURCES fault/interposer_test.cpp USES kiln_fault kiln_base LABEL unit)
kiln_test(fault_put_test IN fault_store_tests SOURCES fault/put_test.cpp fault/read_test.cpp fault/limit_test.cpp fault/kill_test.cpp USES kiln_fault kiln_cache LABEL fault)
kiln_test(fault_power_loss_test IN fault_store_tests SOURCES fault/power_loss_test.cpp fault/power_loss.cpp USES kiln_fault kiln_cache LABEL fault)
kiln_test(fault_slow_disk_test IN fault_store_tests SOURCES fault/slow_disk_test.cpp USES kiln_fault kiln_cache LABEL fault)
kiln_test(fault_storm_test IN fault_store_tests SOURCES fault/storm_test.cpp USES kiln_fault kiln_cache LABEL fault)
kiln_test(fault_path_test SOURCES fault/path_test.cpp USES kiln_process kiln_fault kiln_cache LABEL fault TIMEOUT 300)
