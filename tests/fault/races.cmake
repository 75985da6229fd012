# Many at once: eviction races, the gate under crowds and stopped processes, forks, copies of the library, clocks that jump. The soaks are the
# same programs run by hand: KILN_SOAK_MIB=10240 KILN_SOAK_CAP_MIB=256 fault_eviction_test; KILN_SOAK_READS=10000000 fault_gate_test.
kiln_test(fault_eviction_test IN fault_store_tests SOURCES fault/eviction_test.cpp fault/eviction_use_test.cpp fault/eviction_small_test.cpp USES kiln_fault kiln_cache PkgConfig::lmdb LABEL fault TIMEOUT 300)
kiln_test(fault_cap_test IN fault_store_tests SOURCES fault/cap_test.cpp fault/recent_uses_test.cpp fault/leftover_test.cpp USES kiln_fault kiln_cache LABEL fault IN_MEMORY)
kiln_test(fault_gate_test IN fault_store_tests SOURCES fault/gate_crowd_test.cpp fault/gate_stop_test.cpp USES kiln_fault kiln_cache LABEL fault TIMEOUT 300)
kiln_test(fault_crowd_test IN fault_store_tests SOURCES fault/crowd_test.cpp USES kiln_fault kiln_cache LABEL fault TIMEOUT 300)

add_library(kiln_shifted_clock SHARED ${PROJECT_SOURCE_DIR}/tests/support/shifted_clock.cpp)
target_include_directories(kiln_shifted_clock PRIVATE ${PROJECT_SOURCE_DIR})
# It stands before libc, and before a sanitizer's own calls.
target_compile_options(kiln_shifted_clock PRIVATE -fno-sanitize=all)
target_link_options(kiln_shifted_clock PRIVATE -fno-sanitize=all)
set_target_properties(kiln_shifted_clock PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
kiln_test(fault_clock_test IN fault_clock_tests SOURCES fault/clock_test.cpp USES kiln_shifted_clock kiln_fault kiln_cache LABEL fault)
if(TARGET kiln AND NOT KILN_STATIC)
  kiln_test(fault_copies_test SOURCES fault/copies_test.cpp USES kiln_fault kiln_cache kiln_toolchain LABEL fault TIMEOUT 300)
  target_compile_definitions(fault_copies_test PRIVATE KILN_SHARED_LIBRARY="$<TARGET_FILE:kiln>")
  add_dependencies(fault_copies_test kiln kiln-worker)
endif()
