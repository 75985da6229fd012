kiln_test(fault_damage_test SOURCES fault/damage_test.cpp USES kiln_cache LABEL fault)
