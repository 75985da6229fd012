# The disk rows of the fault matrix (docs/reliability.md). KILN_SOAK_* make the same programs run long.
include(${CMAKE_CURRENT_LIST_DIR}/../support/fault/fault.cmake)
kiln_test(fault_interposer_test SOURCES fault/interposer_test.cpp USES kiln_fault kiln_base LABEL unit)
