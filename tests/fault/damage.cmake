kiln_test(fault_damage_test IN fault_cache_tests SOURCES fault/damage_test.cpp USES kiln_cache LABEL fault)
