# Many at once: eviction races, the gate under crowds and stopped processes, forks, copies of the library, clocks that jump. The soaks are the
# same programs run by hand: KILN_SOAK_MIB=10240 KILN_SOAK_CAP_MIB=256 fault_eviction_test; KILN_SOAK_READS=10000000 fault_gate_test.
kiln_test(fault_eviction_test SOURCES fault/eviction_test.cpp fault/eviction_use_test.cpp USES kiln_fault kiln_cache PkgConfig::lmdb LABEL fault TIMEOUT 300)
kiln_test(fault_gate_test SOURCES fault/gate_crowd_test.cpp fault/gate_stop_test.cpp USES kiln_fault kiln_cache LABEL fault TIMEOUT 300)
